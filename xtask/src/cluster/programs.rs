//! The programs of a cluster: which there are, where they come from and how they are built.

/// The modules that the programs are built from, relative to the root of the repository.
pub(super) const FOLDER: &str = "e2e/cluster";

/// How much of a cluster.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Mode {
    /// The API alone: objects, RBAC, tokens, leases.
    ControlPlane,
    /// Nodes with real containers too.
    Nodes,
}

/// One program.
#[derive(Clone, Copy, Debug)]
pub(super) struct Program {
    /// Its path below the folder of programs. What goes into an image is alone in a folder, which becomes the image's root.
    pub(super) path: &'static str,
    /// Its package of Go.
    pub(super) package: &'static str,
    /// The folder of its go.mod below [`FOLDER`]; empty for that of the cluster.
    pub(super) module: &'static str,
}

const fn program(path: &'static str, package: &'static str) -> Program {
    Program { path, package, module: "" }
}

/// Helm needs other versions of the same modules.
pub(super) const HELM: &str = "helm";

/// All, those of the control plane first.
pub(super) const ALL: [Program; 11] = [
    program("etcd", "go.etcd.io/etcd/server/v3"),
    program("kube-apiserver", "k8s.io/kubernetes/cmd/kube-apiserver"),
    program("kubectl", "k8s.io/kubernetes/cmd/kubectl"),
    program("kube-controller-manager", "k8s.io/kubernetes/cmd/kube-controller-manager"),
    program("kube-scheduler", "k8s.io/kubernetes/cmd/kube-scheduler"),
    program("kubelet", "k8s.io/kubernetes/cmd/kubelet"),
    program("kube-proxy", "k8s.io/kubernetes/cmd/kube-proxy"),
    program("images/pause/pause", "./images/pause"),
    program("images/hello/hello", "./images/hello"),
    program("images/coredns/coredns", "./images/coredns"),
    Program { module: HELM, ..program("helm", "helm.sh/helm/v3/cmd/helm") },
];

/// How many of them are the control plane.
const CONTROL_PLANE: usize = 3;

impl Mode {
    /// What it needs, in the order of building.
    pub(super) fn programs(self) -> &'static [Program] {
        match self {
            Mode::ControlPlane => &ALL[..CONTROL_PLANE],
            Mode::Nodes => &ALL,
        }
    }
}

/// The environment that they are built in. Static programs run in images that hold nothing else. The compiler may use more memory
/// than it would by itself, which saves time.
pub(super) const ENVIRONMENT: [(&str, &str); 3] = [("CGO_ENABLED", "0"), ("GOGC", "400"), ("GOWORK", "off")];

/// The arguments of `go` that come before the package, but for `-o`. `kubernetes` is the version that go.mod names, such as v1.37.2:
/// the servers say it of themselves, and without it they would be v0.0.0.
///
/// No debugging information: the compiler would write it only for the linker to drop it.
pub(super) fn arguments(kubernetes: &str) -> Vec<String> {
    let mut numbers = kubernetes.trim_start_matches('v').split('.');
    let (major, minor) = (numbers.next().unwrap_or_default(), numbers.next().unwrap_or_default());
    let values = [
        ("gitVersion", kubernetes),
        ("gitMajor", major),
        ("gitMinor", minor),
        ("gitTreeState", "clean"),
        ("gitCommit", "unknown"),
        ("buildDate", "2026-01-01T00:00:00Z"),
    ];
    let mut linker = String::from("-s -w");
    for package in ["k8s.io/component-base/version", "k8s.io/client-go/pkg/version"] {
        values.iter().for_each(|(name, value)| linker += &format!(" -X {package}.{name}={value}"));
    }
    let fixed = ["build", "-trimpath", "-buildvcs=false", "-gcflags=all=-dwarf=false", "-ldflags"];
    fixed.into_iter().map(str::to_owned).chain([linker]).collect()
}

/// The version of Kubernetes that a go.mod requires.
pub(super) fn kubernetes(go_mod: &str) -> Option<&str> {
    let required = go_mod.lines().filter_map(|line| {
        let mut words = line.trim().trim_start_matches("require ").split_whitespace();
        (words.next() == Some("k8s.io/kubernetes")).then(|| words.next()).flatten()
    });
    required.into_iter().find(|version| version.starts_with('v'))
}

#[cfg(test)]
mod tests {
    use super::{ALL, Mode, arguments, kubernetes};

    #[test]
    fn the_version_in_go_mod_is_what_the_servers_say() {
        let go_mod = std::fs::read_to_string(crate::repository::root().join(super::FOLDER).join("go.mod")).unwrap();
        let version = kubernetes(&go_mod).expect("go.mod requires Kubernetes");
        let linker = arguments(version).pop().unwrap();
        assert!(linker.contains(&format!("k8s.io/component-base/version.gitVersion={version} ")), "{linker}");
        assert!(linker.contains("k8s.io/client-go/pkg/version.gitMajor=1 "), "{linker}");
    }

    #[test]
    fn the_control_plane_is_the_api_its_store_and_its_client() {
        let names: Vec<_> = Mode::ControlPlane.programs().iter().map(|program| program.path).collect();
        assert_eq!(names, ["etcd", "kube-apiserver", "kubectl"]);
        assert_eq!(Mode::Nodes.programs().len(), ALL.len());
    }

    #[test]
    fn every_program_is_named_in_tools_go_or_is_ours() {
        let folder = crate::repository::root().join(super::FOLDER);
        for program in ALL {
            let tools = std::fs::read_to_string(folder.join(program.module).join("tools.go")).unwrap();
            let ours = program.package.strip_prefix("./").is_some_and(|path| folder.join(path).is_dir());
            assert!(ours || tools.contains(&format!("\"{}\"", program.package)), "{program:?}");
        }
    }
}
