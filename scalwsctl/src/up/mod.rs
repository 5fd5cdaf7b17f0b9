//! `scalwsctl up`: the supervisor of controller, agents and proxies on one machine.

pub mod authority;
pub mod backoff;
pub mod banner;
pub mod children;
pub mod descriptor;
pub mod echo;
pub mod live;
pub mod lock;
pub mod log;
pub mod orphans;
pub mod plan;
pub mod runtime_dir;
pub mod supervisor;

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use keeper::server::Keeper;
use keeper::{KeeperError, Transport};
use rustix::process::{DumpableBehavior, Resource, Rlimit};

use crate::cli::UpArguments;
use crate::commands::{DONE, FAILED};
use crate::state::UpFile;

use lock::StateLock;
use log::Log;
use plan::Plan;
use runtime_dir::RuntimeDir;
use supervisor::Supervisor;

/// Runs `up` until it is told to stop, and gives its exit code.
pub fn run(arguments: &UpArguments) -> u8 {
    let log = Log::new(arguments.log);
    let code = match serve(arguments, log) {
        Ok(()) => DONE,
        Err(error) => {
            log.say(&format!("{error:#}"));
            FAILED
        }
    };
    log.finish();
    code
}

fn serve(arguments: &UpArguments, log: Log) -> Result<()> {
    refuse_core_dumps().context("core dumps cannot be switched off")?;
    orphans::adopt().context("cannot become the parent of orphans")?;
    let manifests = folder(&arguments.manifests)?;
    let programs = plan::find_programs()?;
    let _lock = StateLock::take(&arguments.state)?;
    // A file that a killed `up` left behind must not send anybody to its sockets.
    UpFile::remove(&arguments.state);
    let state = std::fs::canonicalize(&arguments.state)
        .with_context(|| format!("the state directory {} cannot be used", arguments.state.display()))?;
    apart(&manifests, &state)?;

    let keeper = Keeper::new();
    let http = pin(&keeper, arguments.http)?;
    if arguments.https == arguments.http && arguments.http != 0 {
        anyhow::bail!("--http and --https are both {http}; give each its own port");
    }
    let https = pin(&keeper, arguments.https)?;

    let directory = RuntimeDir::create()?;
    let plan = Plan {
        programs,
        manifests,
        state: state.clone(),
        runtime: directory.path().to_owned(),
        http,
        https,
        replicas: arguments.replicas,
        echo: arguments.echo,
        allow_empty: arguments.allow_empty,
        log,
    };
    let result = run_plan(&plan, &directory, keeper);
    UpFile::remove(&state);
    orphans::end_all();
    directory.remove().context("the runtime directory cannot be removed")?;
    result
}

/// The runtime stands on this thread, which lives as long as the process: children get the parent-death signal when the
/// *thread* that started them ends (prctl(2), PR_SET_PDEATHSIG).
fn run_plan(plan: &Plan, directory: &RuntimeDir, keeper: Keeper) -> Result<()> {
    plan.check_sockets()?;
    for replica in 0..plan.replicas {
        directory.volume(replica).context("a volume cannot be made")?;
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(Supervisor::new(plan, keeper)?.run())
}

fn folder(path: &std::path::Path) -> Result<PathBuf> {
    let found = std::fs::canonicalize(path)
        .with_context(|| format!("the folder of manifests {} cannot be read", path.display()))?;
    std::fs::read_dir(&found)
        .with_context(|| format!("{} is not a folder of manifests that can be read", path.display()))?;
    Ok(found)
}

/// The controller writes JSON files into the state directory; they must not be read as manifests.
fn apart(manifests: &std::path::Path, state: &std::path::Path) -> Result<()> {
    let Ok(inside) = state.strip_prefix(manifests) else { return Ok(()) };
    let hidden = inside.components().any(|part| part.as_os_str().as_encoded_bytes().starts_with(b"."));
    if !hidden {
        anyhow::bail!(
            "the state directory {} is inside the folder of manifests {}; give another one with --state",
            state.display(),
            manifests.display()
        );
    }
    Ok(())
}

fn pin(keeper: &Keeper, port: u16) -> Result<u16> {
    keeper.pin(port).map_err(|error| KeeperError::of_bind(Transport::Tcp, port, &error).into())
}

/// This process holds the authority's key: no core file, and no other process of this user may look into it. The limit
/// is inherited by the children.
fn refuse_core_dumps() -> std::io::Result<()> {
    rustix::process::setrlimit(Resource::Core, Rlimit { current: Some(0), maximum: Some(0) })?;
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable)?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

    #[test]
    fn the_state_directory_may_stand_in_the_manifests_only_if_it_is_hidden() {
        assert!(apart(Path::new("/m"), Path::new("/s")).is_ok());
        assert!(apart(Path::new("/m"), Path::new("/m/.scalws")).is_ok());
        assert!(apart(Path::new("/m"), Path::new("/m/state")).is_err());
        assert!(apart(Path::new("/m"), Path::new("/m")).is_err());
        assert!(apart(Path::new("/m"), Path::new("/mm")).is_ok());
    }

    #[test]
    fn a_missing_folder_is_named() {
        let error = format!("{:#}", folder(Path::new("/nonexistent/shop")).unwrap_err());
        assert!(error.contains("/nonexistent/shop") && error.contains("No such file"), "{error}");
    }
}
