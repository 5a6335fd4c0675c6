//! Open MPI as it is installed, over this provider: `tests/mpi/exchange.c`.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::Duration;

use landfall_testkit::TemporaryFolder;
use landfall_testkit::skip::skip;

use crate::tools::{compile, here, provider_folder, run, text};

const LIMIT: Duration = Duration::from_secs(60);

fn program() -> Result<&'static Path, &'static str> {
    static BUILT: OnceLock<Result<(TemporaryFolder, PathBuf), String>> = OnceLock::new();
    let built = BUILT.get_or_init(|| {
        let folder = TemporaryFolder::new("mpi-exchange");
        let program = folder.path().join("exchange");
        compile("mpicc", &[here().join("tests/mpi/exchange.c")], &program, &[])?;
        Ok((folder, program))
    });
    built.as_ref().map(|(_, program)| &**program).map_err(String::as_str)
}

/// `mpirun`, with this provider and nothing else.
fn mpirun(ranks: u32) -> Command {
    let mut command = Command::new("mpirun");
    command.env("FI_PROVIDER_PATH", provider_folder());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["-np", &ranks.to_string(), "--oversubscribe", "--mca", "pml", "cm"]);
    command.args(["--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", "landfall"]);
    command
}

fn check(test: &str, ranks: u32, interface: &str) {
    let program = match program() {
        Ok(program) => program,
        Err(why) => return skip(test, why),
    };
    let mut command = mpirun(ranks);
    command.env("FI_LANDFALL_IFACE", interface).arg(program);
    let output = run(command, LIMIT);
    let said = text(&output);
    assert!(output.status.success() && said.contains("all is as it should be"), "{said}");
}

#[test]
fn two_ranks_exchange_all_kinds_of_messages() {
    check("two_ranks_exchange_all_kinds_of_messages", 2, "lo");
}

#[test]
fn five_ranks_exchange_all_kinds_of_messages() {
    check("five_ranks_exchange_all_kinds_of_messages", 5, "lo");
}
