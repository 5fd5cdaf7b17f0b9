//! Bodies that are refused, and bodies that end or stop the process while they load: for tests of what follows then.

use config::{Action, FragmentBody, Share};

/// The answer header whose value is the trigger: `refuse`, `abort`, `panic` or `hang`.
pub const TRIGGER: &str = "x-scalws-test-poison";
/// What the name of a Service begins with whose end is the trigger. Manifests can say that, which cannot set a header.
pub const SERVICE: &str = "scalws-test-";

/// Acts on a trigger.
///
/// # Errors
/// When the trigger is `refuse`. When it is `abort` the process ends, when it is `panic` this panics, and when it is
/// `hang` it does not return.
pub fn look_at(body: &FragmentBody) -> Result<(), String> {
    for action in &body.actions {
        let set = action.response_headers.set.iter();
        let headers = set.filter(|(name, _)| &**name == TRIGGER).map(|(_, value)| &**value);
        let shares = match &action.action {
            Action::Forward(forward) => forward.shares.as_slice(),
            Action::Redirect(_) | Action::Respond(_) => &[],
        };
        let services = shares.iter().filter_map(|share| match share {
            Share::Pool { name, .. } => name.service.strip_prefix(SERVICE),
            Share::Status { .. } => None,
        });
        for word in headers.chain(services) {
            match word {
                "refuse" => return Err("it is refused, as its test trigger says".to_owned()),
                "abort" => std::process::abort(),
                "panic" => panic!("as its test trigger says"),
                "hang" => loop {
                    std::thread::park();
                },
                _ => {}
            }
        }
    }
    Ok(())
}

/// How long a load may take in a test that sets `SCALWS_TEST_LOAD_LIMIT_MS`.
pub fn load_limit() -> Option<std::time::Duration> {
    let limit = std::env::var("SCALWS_TEST_LOAD_LIMIT_MS").ok()?;
    limit.parse().ok().map(std::time::Duration::from_millis)
}
