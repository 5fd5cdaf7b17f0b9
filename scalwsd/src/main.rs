//! The program `scalwsd`.

use std::process::ExitCode;

use clap::Parser;
use scalwsd::cli::{Cli, Command, LogForm};
use scalwsd::{check, process, run, worker};

fn main() -> ExitCode {
    match start() {
        Ok(code) => code,
        Err(error) => {
            tracing::error!("{error:#}");
            ExitCode::FAILURE
        }
    }
}

fn start() -> anyhow::Result<ExitCode> {
    let cli = Cli::parse();
    let common = match &cli.command {
        Some(Command::Run(options) | Command::Worker(options)) => &options.common,
        Some(Command::Check(_)) | None => &cli.common,
    };
    process::log(common.log == LogForm::Json);
    process::seal()?;
    let threads = || tokio::runtime::Builder::new_multi_thread().enable_all().build();
    match &cli.command {
        Some(Command::Check(options)) => {
            return Ok(ExitCode::from(check::check(options, &mut std::io::stdout().lock())?));
        }
        Some(Command::Run(options) | Command::Worker(options)) => {
            if options.supervised {
                process::die_with_parent()?;
            }
            process::raise_descriptors();
            if options.keeper.is_some() {
                threads()?.block_on(worker::run(options))?;
            } else {
                let arguments: Vec<String> = std::env::args().skip(2).collect();
                let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
                runtime.block_on(run::run(options, &arguments))?;
            }
        }
        None => match &cli.config {
            Some(file) => {
                process::raise_descriptors();
                threads()?.block_on(worker::stand_alone(file, common))?;
            }
            None => {
                use clap::CommandFactory;
                Cli::command().print_help()?;
                return Ok(ExitCode::from(2));
            }
        },
    }
    Ok(ExitCode::SUCCESS)
}
