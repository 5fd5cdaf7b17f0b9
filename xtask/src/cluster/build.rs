//! Builds the programs of a cluster into `target/cluster/<key>/bin`; what is there already is kept.

use std::collections::BTreeSet;
use std::io::{IsTerminal, Write};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::key::Ingredients;
use super::machine::Go;
use super::programs::{ENVIRONMENT, FOLDER, Mode, Program};
use crate::command;
use crate::repository;

/// How often it is looked whether a build has ended.
const LOOK: Duration = Duration::from_millis(100);
/// How often a build that goes on says so: on a terminal, whose line is written over, and in a log.
const SAY: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(30)];
/// What `current` is called in the folder of all builds.
const CURRENT: &str = "current";

/// Fetches the modules that a mode needs, unless its programs are there.
///
/// # Errors
/// When a module is not to be had.
pub(super) fn fetch(go: &Go, mode: Mode) -> Result<()> {
    let sources = repository::root().join(FOLDER);
    let key = Ingredients::read(&sources, &go.version)?.key();
    let bin = repository::target().join("cluster").join(key).join("bin");
    if mode.programs().iter().all(|program| bin.join(program.path).is_file()) {
        return Ok(());
    }
    eprintln!("cluster: fetching modules");
    let modules: BTreeSet<_> = mode.programs().iter().map(|program| program.module).collect();
    for module in modules {
        let mut list = Command::new(&go.program);
        list.current_dir(sources.join(module)).envs(ENVIRONMENT).args(["list", "-deps"]);
        list.args(mode.programs().iter().filter(|program| program.module == module).map(|program| program.package));
        command::output(list).context("Go modules cannot be fetched")?;
    }
    Ok(())
}

/// Builds what a mode needs, and gives the folder of the programs.
pub(super) fn run(go: &Go, mode: Mode) -> Result<PathBuf> {
    let sources = repository::root().join(FOLDER);
    let ingredients = Ingredients::read(&sources, &go.version)?;
    let builds = repository::target().join("cluster");
    let key = ingredients.key();
    let bin = builds.join(&key).join("bin");
    let programs = mode.programs();
    let began = Instant::now();
    let mut built = 0;
    for (index, program) in programs.iter().enumerate() {
        let to = bin.join(program.path);
        if !to.is_file() {
            let name = format!("[{}/{}] {}", index + 1, programs.len(), program.path);
            build(go, &ingredients, program, &to, &name)?;
            built += 1;
        }
    }
    point(&builds, &key)?;
    let kept = programs.len() - built;
    eprintln!("cluster: {built} built, {kept} kept in {}, {:.1} s", bin.display(), began.elapsed().as_secs_f64());
    Ok(bin)
}

/// Builds one program beside its place and then moves it there, so that what is there is whole.
fn build(go: &Go, ingredients: &Ingredients, program: &Program, to: &Path, name: &str) -> Result<()> {
    let folder = to.parent().context("a program is in a folder")?;
    std::fs::create_dir_all(folder).with_context(|| format!("making {}", folder.display()))?;
    let partial = folder.with_file_name(format!(".{}-{}", program.path.replace('/', "-"), std::process::id()));
    let mut command = Command::new(&go.program);
    command.current_dir(repository::root().join(FOLDER).join(program.module)).envs(ENVIRONMENT);
    command.args(&ingredients.arguments).arg("-o").arg(&partial).arg(program.package);
    let (began, cpu) = (Instant::now(), children_seconds());
    let child = command.spawn().with_context(|| format!("starting go for {}", program.path))?;
    let status = wait(child, name)?;
    if !status.success() {
        let _ = std::fs::remove_file(&partial);
        bail!("{name} cannot be built ({status}); what go said is above");
    }
    std::fs::rename(&partial, to).with_context(|| format!("moving {} to {}", partial.display(), to.display()))?;
    let used = cpu.zip(children_seconds()).map(|(before, after)| format!(" ({:.0} s of CPU)", after - before));
    let size = std::fs::metadata(to).map_or(0, |data| data.len() >> 20);
    eprintln!("{name}: {:.0} s{}, {size} MiB", began.elapsed().as_secs_f64(), used.unwrap_or_default());
    Ok(())
}

/// Waits for a build and says from time to time that it goes on.
fn wait(mut child: Child, name: &str) -> Result<ExitStatus> {
    let terminal = std::io::stderr().is_terminal();
    let every = if terminal { SAY[0] } else { SAY[1] };
    let began = Instant::now();
    let mut said = Duration::ZERO;
    eprintln!("{name}: building");
    loop {
        if let Some(status) = child.try_wait().with_context(|| format!("waiting for {name}"))? {
            return Ok(status);
        }
        let elapsed = began.elapsed();
        if elapsed >= said + every {
            said = elapsed;
            let end = if terminal { "\r" } else { "\n" };
            let _ = write!(std::io::stderr(), "{name}: {} s{end}", elapsed.as_secs());
        }
        std::thread::sleep(LOOK);
    }
}

/// Seconds of CPU of all children that have ended, and of theirs, from the 16th and 17th field of proc(5)'s `stat`, which count
/// hundredths. None where there is no such file.
fn children_seconds() -> Option<f64> {
    let stat = std::fs::read_to_string("/proc/self/stat").ok()?;
    let ticks: u64 =
        stat.rsplit_once(')')?.1.split_whitespace().skip(13).take(2).map_while(|n| n.parse::<u64>().ok()).sum();
    Some(ticks as f64 / 100.0)
}

/// Lets `current` name the build with this key, by a rename, so that it names one at any moment.
fn point(builds: &Path, key: &str) -> Result<()> {
    let current = builds.join(CURRENT);
    if std::fs::read_link(&current).is_ok_and(|there| there == Path::new(key)) {
        return Ok(());
    }
    let next = builds.join(format!(".{CURRENT}-{}", std::process::id()));
    let _ = std::fs::remove_file(&next);
    symlink(key, &next)
        .and_then(|()| std::fs::rename(&next, &current))
        .with_context(|| format!("linking {}", current.display()))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{children_seconds, point};

    #[test]
    fn current_names_the_last_build() {
        let builds = std::env::temp_dir().join(format!("scalws-xtask-current-{}", std::process::id()));
        std::fs::create_dir_all(&builds).unwrap();
        for key in ["one", "two", "two"] {
            point(&builds, key).unwrap();
            assert_eq!(std::fs::read_link(builds.join("current")).unwrap(), Path::new(key));
        }
        assert_eq!(std::fs::read_dir(&builds).unwrap().count(), 1, "nothing else is left there");
        std::fs::remove_dir_all(&builds).unwrap();
    }

    #[test]
    fn the_seconds_of_children_are_counted() {
        let before = children_seconds().unwrap();
        let busy = "i=0; while [ $i -lt 100000 ]; do i=$((i + 1)); done";
        assert!(std::process::Command::new("sh").args(["-c", busy]).status().unwrap().success());
        assert!(children_seconds().unwrap() > before);
    }
}
