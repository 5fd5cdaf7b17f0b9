//! What a cluster needs of this machine: root, Go and Debian packages; what is missing is named, with the way to get it.

use std::ffi::OsString;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail};

use super::programs::{FOLDER, Mode};
use crate::command::{self, program_at_root};
use crate::repository;

/// A compiler for Go.
pub(super) struct Go {
    /// How it is started.
    pub(super) program: OsString,
    /// Its version, such as go1.26.8.
    pub(super) version: String,
}

/// Where Go's own archive is unpacked to by its instructions, which do not change the search path of every shell.
const USUAL_GO: &str = "/usr/local/go/bin/go";

/// The compiler. One from 1.21 on that is older than go.mod wants fetches the newer one by itself, unless it may not.
pub(super) fn go() -> Result<Go> {
    let folder = repository::root().join(FOLDER);
    let go_mod = std::fs::read_to_string(folder.join("go.mod")).with_context(|| format!("reading {FOLDER}/go.mod"))?;
    let wanted = go_mod.lines().find_map(|line| line.strip_prefix("go ")).context("go.mod names no version of Go")?;
    let way_out = format!("get Go {wanted} or newer from https://go.dev/dl, which unpacks to /usr/local/go");
    let mut programs = ["go", USUAL_GO].into_iter();
    let Some(program) = programs.find(|program| command::works(program, &["version"])) else {
        bail!("Go is not installed; {way_out}");
    };
    let mut ask = Command::new(program);
    ask.current_dir(&folder).args(["env", "GOVERSION"]);
    let version = command::output(ask).with_context(|| way_out.clone())?.trim().to_owned();
    if release(&version) < release(wanted) {
        bail!("{version} is too old; {way_out}");
    }
    Ok(Go { program: program.into(), version })
}

/// The release of a version: (1, 26) of go1.26.8.
fn release(version: &str) -> (u32, u32) {
    let mut numbers = version.trim().trim_start_matches("go").split(|c: char| !c.is_ascii_digit());
    let mut number = || numbers.next().and_then(|digits| digits.parse().ok()).unwrap_or(0);
    (number(), number())
}

/// Whether this process may make namespaces.
pub(super) fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|process| process.uid() == 0)
}

/// An error unless this is root.
pub(super) fn require_root() -> Result<()> {
    if !is_root() {
        bail!(
            "a cluster runs in namespaces, which need root; run this as root, for example with `sudo -E env PATH=$PATH`"
        );
    }
    Ok(())
}

/// A program or file, and the Debian package that has it.
type Need = (&'static str, &'static str);

/// What the control plane needs beside the programs that are built.
const CONTROL_PLANE: [Need; 6] = [
    ("curl", "curl"),
    ("ip", "iproute2"),
    ("nsenter", "util-linux"),
    ("openssl", "openssl"),
    ("setsid", "util-linux"),
    ("unshare", "util-linux"),
];

/// What a node needs too.
const NODES: [Need; 7] = [
    ("/usr/lib/cni/bridge", "containernetworking-plugins"),
    ("conntrack", "conntrack"),
    ("containerd", "containerd"),
    ("iptables", "iptables"),
    ("jq", "jq"),
    ("nft", "nftables"),
    ("runc", "runc"),
];

/// Those whose program or file is not there.
fn missing(mode: Mode, is_there: impl Fn(&str) -> bool) -> Vec<Need> {
    let nodes: &[Need] = if mode == Mode::Nodes { &NODES } else { &[] };
    CONTROL_PLANE.iter().chain(nodes).filter(|(what, _)| !is_there(what)).copied().collect()
}

/// The packages that have them, each once.
fn packages(missing: &[Need]) -> Vec<&'static str> {
    let mut packages: Vec<_> = missing.iter().map(|(_, package)| *package).collect();
    packages.sort_unstable();
    packages.dedup();
    packages
}

/// Whether a program is on the search path or in a folder of root's, or a file exists.
fn is_there(what: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut folders = std::env::split_paths(&path).chain(["/usr/sbin", "/sbin"].map(PathBuf::from));
    if what.starts_with('/') { Path::new(what).exists() } else { folders.any(|folder| folder.join(what).is_file()) }
}

/// Installs what is missing if that is wanted and possible; an error that names it otherwise.
pub(super) fn require_packages(mode: Mode, install: bool) -> Result<()> {
    let missing = missing(mode, is_there);
    if missing.is_empty() {
        return Ok(());
    }
    let packages = packages(&missing);
    if !install || !is_root() || !command::works("apt-get", &["--version"]) {
        let names: Vec<_> = missing.iter().map(|(what, _)| *what).collect();
        let way_out = format!("on Debian `apt-get install {}` brings what is missing", packages.join(" "));
        bail!("not installed: {}; {way_out}", names.join(", "));
    }
    eprintln!("installing {}", packages.join(" "));
    command::succeed(program_at_root("apt-get", ["update", "-qq"]))?;
    let mut install = program_at_root("apt-get", ["install", "-qqy", "--no-install-recommends"]);
    install.args(&packages).env("DEBIAN_FRONTEND", "noninteractive");
    command::succeed(install)
}

#[cfg(test)]
mod tests {
    use super::{is_there, missing, packages, release};
    use crate::cluster::programs::Mode;

    #[test]
    fn an_older_release_of_go_is_told_from_a_newer_one() {
        assert_eq!(release("go1.26.8"), (1, 26));
        assert_eq!(release("go1.27rc1"), (1, 27));
        assert!(release("go1.19.8") < release("1.26.0") && release("go1.26.8") >= release("1.26.0"));
    }

    #[test]
    fn what_is_missing_is_named_by_package_once() {
        assert_eq!(
            packages(&missing(Mode::ControlPlane, |what| what == "curl")),
            ["iproute2", "openssl", "util-linux"]
        );
    }

    #[test]
    fn only_nodes_need_containers() {
        let has_no_containers = |what: &str| what != "containerd" && what != "/usr/lib/cni/bridge";
        assert_eq!(missing(Mode::ControlPlane, has_no_containers), []);
        assert_eq!(packages(&missing(Mode::Nodes, has_no_containers)), ["containerd", "containernetworking-plugins"]);
    }

    #[test]
    fn a_program_is_looked_for_on_the_search_path_and_a_file_where_it_is() {
        assert!(is_there("sh") && is_there("/bin/sh"));
        assert!(!is_there("no-such-program-anywhere") && !is_there("/no/such/file"));
    }
}
