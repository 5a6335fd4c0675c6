//! MPICH as PyPI has it, with a newer libfabric of its own, over this provider: the programs of
//! `tests/mpi`.

use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use landfall_testbed::require_namespaces;
use landfall_testkit::or_skip;

use crate::mpi::{Machines, Program, alone, expect_all_well};
use crate::tools::{here, provider_folder, run, text};

/// MPICH spins where Open MPI lets others run: more ranks than cores take their time.
const LIMIT: Duration = Duration::from_secs(300);

static EXCHANGE: Program = Program::new("exchange", mpicc);
static KERNELS: Program = Program::new("kernels", mpicc);
static KILLED: Program = Program::new("killed", mpicc);

/// A program of MPICH, where `bash .ci/run tools` puts them: beside what cargo builds. The error:
/// it is not there.
fn tool(name: &str) -> Result<PathBuf, String> {
    installed(&format!("mpich/bin/{name}"))
}

fn installed(name: &str) -> Result<PathBuf, String> {
    let test = std::env::current_exe().unwrap();
    let mut places = test.ancestors().map(|folder| folder.join("tools").join(name));
    let found = places.find(|path| path.exists());
    found.ok_or(format!("{name} of PyPI is needed: bash .ci/run tools"))
}

fn mpicc() -> Result<PathBuf, String> {
    tool("mpicc")
}

/// `mpiexec`, with this provider and nothing else, for ranks of one machine, too.
fn mpiexec(ranks: u32) -> Result<Command, String> {
    let mut command = Command::new(tool("mpiexec")?);
    command.env("FI_PROVIDER_PATH", provider_folder()).env("FI_PROVIDER", "landfall");
    command.env("MPIR_CVAR_CH4_NETMOD", "ofi").env("MPIR_CVAR_NOLOCAL", "1");
    command.args(["-n", &ranks.to_string()]);
    Ok(command)
}

fn check(test: &str, program: &'static Program, ranks: u32) {
    let _alone = alone(ranks);
    let mut command = or_skip!(ready(program, ranks), test);
    command.arg("windows");
    expect_all_well(&run(command, LIMIT));
}

/// A program to be run by ranks of this machine. The error: what is missing.
fn ready(program: &'static Program, ranks: u32) -> Result<Command, String> {
    let path = program.path()?;
    let mut command = mpiexec(ranks)?;
    command.env("FI_LANDFALL_IFACE", "lo").arg(path);
    Ok(command)
}

#[test]
fn two_ranks_of_mpich_exchange_all_kinds_of_messages() {
    check("two_ranks_of_mpich_exchange_all_kinds_of_messages", &EXCHANGE, 2);
}

#[test]
fn five_ranks_of_mpich_exchange_all_kinds_of_messages() {
    check("five_ranks_of_mpich_exchange_all_kinds_of_messages", &EXCHANGE, 5);
}

#[test]
fn kernels_are_right_over_two_ranks_of_mpich() {
    check("kernels_are_right_over_two_ranks_of_mpich", &KERNELS, 2);
}

#[test]
fn kernels_are_right_over_sixteen_ranks_of_mpich() {
    check("kernels_are_right_over_sixteen_ranks_of_mpich", &KERNELS, 16);
}

#[test]
fn programs_in_python_send_objects_and_arrays_by_mpich() {
    let mut command = or_skip!(mpiexec(3));
    let (module, library) = (or_skip!(installed("mpi4py")), or_skip!(installed("mpich/lib")));
    command.env("PYTHONPATH", module).env("LD_LIBRARY_PATH", library).env("MPI4PY_MPIABI", "mpich");
    command.env("FI_LANDFALL_IFACE", "lo").arg("python3").arg(here().join("tests/mpi/objects.py"));
    expect_all_well(&run(command, LIMIT));
}

#[test]
fn mpich_tells_of_a_rank_that_is_killed() {
    let command = or_skip!(ready(&KILLED, 3));
    let output = run(command, LIMIT);
    let said = text(&output);
    assert!(!output.status.success() && said.contains("signal 9"), "{said}");
}

/// As between two machines, with a key that `mpiexec` hands on with all of its environment.
#[test]
fn ranks_of_mpich_on_two_hosts_exchange_all_kinds_of_messages() {
    require_namespaces!();
    let (mut command, program) = (or_skip!(mpiexec(2)), or_skip!(EXCHANGE.path()));
    let machines = Machines::new();
    let [here, there] = machines.addresses();
    command.env("FI_LANDFALL_KEY", "3c".repeat(32));
    command.args(["-launcher", "ssh", "-launcher-exec"]).arg(machines.agent());
    // By address: there is nobody who knows names.
    command.args(["-localhost", &here, "-hosts", &format!("{here}:1,{there}:1")]);
    command.arg(program);
    expect_all_well(&machines.run(command, LIMIT));
}
