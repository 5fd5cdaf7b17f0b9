//! A network namespace of a test's own: nothing in it reaches the machine's network.

use std::fs::File;
use std::os::fd::AsFd;
use std::process::Command;
use std::sync::atomic::{AtomicU32, Ordering};

use anyhow::{Context, Result, ensure};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// A network namespace, until it is dropped.
#[derive(Debug)]
pub struct Network(String);

impl Network {
    /// With nothing but a loopback interface, which is up or never was: only then is no loopback address its own. None without
    /// root and iproute2.
    pub fn new(loopback: bool) -> Option<Network> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let network = Network(format!("scalws-e2e-{}-{number}", std::process::id()));
        let made = ip(&["netns", "add", &network.0]).is_ok();
        let ready = made && (!loopback || network.ip(&["link", "set", "lo", "up"]).is_ok());
        ready.then_some(network)
    }

    /// Its name.
    pub fn name(&self) -> &str {
        &self.0
    }

    /// `ip` in it.
    ///
    /// # Errors
    /// What `ip` says.
    pub fn ip(&self, words: &[&str]) -> Result<()> {
        ip(&[&["-n", &self.0], words].concat())
    }

    /// What stands before a command that is to run in it and become that command.
    pub fn within(&self) -> [&str; 4] {
        ["ip", "netns", "exec", &self.0]
    }

    /// Sets a value below `/proc/sys/net`.
    ///
    /// # Errors
    /// When there is no such value.
    pub fn set(&self, path: &str, value: &str) -> Result<()> {
        let script = format!("echo {value} > /proc/sys/net/{path}");
        run(Command::new("ip").args(["netns", "exec", &self.0, "sh", "-c", &script]))
    }

    /// Moves this thread into it, with all threads and processes that it starts from now on.
    ///
    /// # Errors
    /// When this user may not.
    pub fn enter(&self) -> Result<()> {
        let path = format!("/run/netns/{}", self.0);
        let file = File::open(&path).context(path)?;
        Ok(move_into_link_name_space(file.as_fd(), Some(LinkNameSpaceType::Network))?)
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        // One that could not be made cannot be deleted.
        let _ = ip(&["netns", "delete", &self.0]);
    }
}

fn ip(words: &[&str]) -> Result<()> {
    run(Command::new("ip").args(words))
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().with_context(|| format!("{command:?}"))?;
    ensure!(output.status.success(), "{command:?}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
