//! Bodies that are refused, and bodies that end the process while they load: for tests of what follows then.

use config::{Action, FragmentBody, Share};

/// The answer header whose value is the trigger: `refuse` or `abort`.
pub const TRIGGER: &str = "x-scalws-test-poison";
/// A route to a Service of this name is refused. Manifests can say that, which cannot set a header.
pub const REFUSED_SERVICE: &str = "scalws-test-refuse";
/// A route to a Service of this name ends the process.
pub const DEADLY_SERVICE: &str = "scalws-test-abort";

/// Acts on a trigger.
///
/// # Errors
/// When the trigger is `refuse`. When it is `abort` the process ends.
pub fn look_at(body: &FragmentBody) -> Result<(), String> {
    for action in &body.actions {
        let headers = action.response_headers.set.iter().filter_map(|(name, value)| match (&**name, &**value) {
            (TRIGGER, "refuse") => Some(REFUSED_SERVICE),
            (TRIGGER, "abort") => Some(DEADLY_SERVICE),
            _ => None,
        });
        let shares = match &action.action {
            Action::Forward(forward) => forward.shares.as_slice(),
            Action::Redirect(_) | Action::Respond(_) => &[],
        };
        let services = shares.iter().filter_map(|share| match share {
            Share::Pool { name, .. } => Some(&*name.service),
            Share::Status { .. } => None,
        });
        for word in headers.chain(services) {
            match word {
                REFUSED_SERVICE => return Err("it is refused, as its test trigger says".to_owned()),
                DEADLY_SERVICE => std::process::abort(),
                _ => {}
            }
        }
    }
    Ok(())
}
