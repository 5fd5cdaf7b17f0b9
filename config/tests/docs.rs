//! The generated reference in `docs/reference/` is what the types say now.

use std::path::Path;

/// With `UPDATE_DOCS=1` the file is written instead.
fn check(file: &str, wanted: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference").join(file);
    if std::env::var_os("UPDATE_DOCS").is_some_and(|value| value == "1") {
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("docs/reference can be made");
        std::fs::write(&path, wanted).expect("the reference can be written");
    }
    let found = std::fs::read_to_string(&path).unwrap_or_default();
    assert!(found == wanted, "docs/reference/{file} is stale; run UPDATE_DOCS=1 cargo test -p config docs");
}

#[test]
fn docs_reference_page_is_fresh() {
    check("configuration.md", &config::reference_markdown());
}

#[test]
fn docs_json_schema_is_fresh() {
    check("configuration.schema.json", &config::schema_json());
}
