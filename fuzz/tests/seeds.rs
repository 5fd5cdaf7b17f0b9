//! Every seed runs through its target: an input that once broke a property stays a test.

use std::path::Path;

use fuzz::TARGETS;

#[test]
fn every_target_has_seeds_and_holds_for_them() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for target in TARGETS {
        let folder = seeds.join(target.name);
        let mut inputs = 0;
        for entry in std::fs::read_dir(&folder).unwrap_or_else(|e| panic!("{}: {e}", folder.display())) {
            (target.run)(&std::fs::read(entry.unwrap().path()).unwrap());
            inputs += 1;
        }
        assert!(inputs > 0, "{} is empty", folder.display());
    }
}

#[test]
fn every_folder_of_seeds_belongs_to_a_target() {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds");
    for entry in std::fs::read_dir(seeds).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(fuzz::target(&name).is_some(), "{name} is no target");
    }
}
