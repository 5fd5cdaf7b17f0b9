#!/bin/sh
# Compiles our crates with the coverage counters that libFuzzer reads. Works with stable Rust: cargo runs it in place of
# rustc for the crates of this workspace (RUSTC_WORKSPACE_WRAPPER), and so others are built as usual and shared.
rustc=$1
shift
case " $* " in
*" --crate-name build_script_"* | *" --crate-type proc-macro "*) exec "$rustc" "$@" ;;
esac
exec "$rustc" "$@" \
    -Ccodegen-units=1 -Cpasses=sancov-module \
    -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
    -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares
