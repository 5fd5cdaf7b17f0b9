//! Hands the input of libFuzzer to the target that `SCALWS_FUZZ_TARGET` names.
#![no_main]

use std::sync::OnceLock;

use fuzz::Target;
use libfuzzer_sys::fuzz_target;

/// Chosen once: libFuzzer calls the target millions of times.
fn chosen() -> Target {
    static TARGET: OnceLock<Target> = OnceLock::new();
    *TARGET.get_or_init(|| {
        let name = std::env::var("SCALWS_FUZZ_TARGET").unwrap_or_default();
        fuzz::target(&name).unwrap_or_else(|| panic!("SCALWS_FUZZ_TARGET={name:?} names no target"))
    })
}

fuzz_target!(|data: &[u8]| {
    (chosen().run)(data);
});
