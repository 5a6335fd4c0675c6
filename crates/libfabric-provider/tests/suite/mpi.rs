//! Open MPI as it is installed, over this provider: `tests/mpi/exchange.c`.

use std::fs::Permissions;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;
use std::time::Duration;

use landfall_testbed::{VethConfig, VethPair, require_namespaces};
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

fn check(test: &str, ranks: u32) {
    let program = match program() {
        Ok(program) => program,
        Err(why) => return skip(test, why),
    };
    let mut command = mpirun(ranks);
    command.env("FI_LANDFALL_IFACE", "lo").arg(program).arg("windows");
    expect_all_well(&run(command, LIMIT));
}

fn expect_all_well(output: &Output) {
    let said = text(output);
    assert!(output.status.success() && said.contains("all is as it should be"), "{said}");
}

#[test]
fn two_ranks_exchange_all_kinds_of_messages() {
    check("two_ranks_exchange_all_kinds_of_messages", 2);
}

#[test]
fn five_ranks_exchange_all_kinds_of_messages() {
    check("five_ranks_exchange_all_kinds_of_messages", 5);
}

/// As between two machines, with a cable between them and a key that `mpirun` hands on. In the
/// place of `ssh` a script goes to the other namespace.
#[test]
fn ranks_on_two_hosts_exchange_all_kinds_of_messages() {
    const NAME: &str = "ranks_on_two_hosts_exchange_all_kinds_of_messages";
    require_namespaces!();
    let program = match program() {
        Ok(program) => program,
        Err(why) => return skip(NAME, why),
    };
    let cable = VethPair::new(VethConfig::default()).unwrap();
    let (here, there) = (&cable.a, &cable.b);
    let descriptor = there.namespace.as_fd().as_raw_fd();
    let namespace = format!("/proc/{}/fd/{descriptor}", std::process::id());
    let folder = TemporaryFolder::new("mpi-agent");
    let agent = folder.path().join("agent");
    let script = format!("#!/bin/bash\nshift\nexec nsenter --net={namespace} bash -c \"$*\"\n");
    std::fs::write(&agent, script).unwrap();
    std::fs::set_permissions(&agent, Permissions::from_mode(0o755)).unwrap();
    let mut command = mpirun(2);
    command.arg("--host").arg(format!("{}:1,{}:1", here.ipv4, there.ipv4));
    command.args(["--mca", "plm_rsh_agent"]).arg(&agent);
    command.env("FI_LANDFALL_KEY", "3c".repeat(32));
    command.args(["-x", "FI_PROVIDER_PATH", "-x", "FI_LANDFALL_KEY"]).arg(program);
    let output = here.namespace.enter(move || run(command, LIMIT)).unwrap();
    expect_all_well(&output);
}
