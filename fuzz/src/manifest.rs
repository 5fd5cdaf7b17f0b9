//! The bytes of a manifest file: reading ends with values or with a message.

pub(crate) fn run(data: &[u8]) {
    match translate::manifest::values(data) {
        Ok(values) => drop(values),
        Err(error) => assert!(!error.to_string().is_empty(), "an error says what is wrong"),
    }
}
