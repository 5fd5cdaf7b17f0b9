//! Bodies that are refused, and bodies that end the process while they load: for tests of what follows then.

use config::FragmentBody;

/// The answer header whose value is the trigger: `refuse` or `abort`.
pub const TRIGGER: &str = "x-scalws-test-poison";

/// Acts on a trigger.
///
/// # Errors
/// When the trigger is `refuse`. When it is `abort` the process ends.
pub fn look_at(body: &FragmentBody) -> Result<(), String> {
    let headers = body.actions.iter().flat_map(|action| &action.response_headers.set);
    for (name, value) in headers {
        match (name.as_str(), value.as_str()) {
            (TRIGGER, "refuse") => return Err("it is refused, as its test trigger says".to_owned()),
            (TRIGGER, "abort") => std::process::abort(),
            _ => {}
        }
    }
    Ok(())
}
