//! Open MPI as it is installed, over this provider: the programs of `tests/mpi`.

use std::fs::Permissions;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use landfall_testbed::{Namespace, VethConfig, VethPair, require_namespaces};
use landfall_testkit::TemporaryFolder;
use landfall_testkit::or_skip;

use crate::cases::LAYERED;
use crate::tools::{compile, here, provider_folder, run, text};

pub(crate) const LIMIT: Duration = Duration::from_secs(60);
/// The same of many ranks.
const LONG_LIMIT: Duration = Duration::from_secs(300);

/// Held by a test with more ranks than any machine of ours has cores: two at a time would only
/// wait for each other.
static MANY_RANKS: Mutex<()> = Mutex::new(());

/// A program of `tests/mpi`, built once, with one MPI.
pub(crate) struct Program {
    name: &'static str,
    compiler: fn() -> Result<PathBuf, String>,
    built: OnceLock<Result<(TemporaryFolder, PathBuf), String>>,
}

pub(crate) static EXCHANGE: Program = Program::new("exchange", mpicc);
static KERNELS: Program = Program::new("kernels", mpicc);
static KILLED: Program = Program::new("killed", mpicc);

pub(crate) fn mpicc() -> Result<PathBuf, String> {
    Ok("mpicc".into())
}

impl Program {
    pub(crate) const fn new(name: &'static str, compiler: fn() -> Result<PathBuf, String>) -> Self {
        Self { name, compiler, built: OnceLock::new() }
    }

    pub(crate) fn path(&self) -> Result<&Path, &str> {
        let built = self.built.get_or_init(|| {
            let compiler = (self.compiler)()?;
            let folder = TemporaryFolder::new("mpi");
            let program = folder.path().join(self.name);
            let source = here().join("tests/mpi").join(self.name).with_extension("c");
            compile(&compiler, &[source], &program, &["-lm"])?;
            Ok((folder, program))
        });
        built.as_ref().map(|(_, program)| &**program).map_err(String::as_str)
    }
}

/// `mpirun`, with this provider and nothing else.
pub(crate) fn mpirun(ranks: u32) -> Command {
    mpirun_with(ranks, "landfall")
}

fn mpirun_with(ranks: u32, provider: &str) -> Command {
    let mut command = Command::new("mpirun");
    command.env("FI_PROVIDER_PATH", provider_folder());
    command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
    command.args(["-np", &ranks.to_string(), "--oversubscribe", "--mca", "pml", "cm"]);
    command.args(["--mca", "mtl", "ofi", "--mca", "mtl_ofi_provider_include", provider]);
    command
}

fn check(test: &str, program: &Program, ranks: u32) {
    let (_alone, limit) = alone(ranks);
    let program = or_skip!(program.path(), test);
    let mut command = mpirun(ranks);
    command.env("FI_LANDFALL_IFACE", "lo").arg(program).arg("windows");
    expect_all_well(&run(command, limit));
}

/// Waits until no other test has many ranks, if this one has; and how long it may take.
pub(crate) fn alone(ranks: u32) -> (Option<MutexGuard<'static, ()>>, Duration) {
    let lock = || MANY_RANKS.lock().unwrap_or_else(PoisonError::into_inner);
    if ranks > 8 { (Some(lock()), LONG_LIMIT) } else { (None, LIMIT) }
}

pub(crate) fn expect_all_well(output: &Output) {
    let said = text(output);
    assert!(output.status.success() && said.contains("all is as it should be"), "{said}");
}

#[test]
fn two_ranks_exchange_all_kinds_of_messages() {
    check("two_ranks_exchange_all_kinds_of_messages", &EXCHANGE, 2);
}

#[test]
fn five_ranks_exchange_all_kinds_of_messages() {
    check("five_ranks_exchange_all_kinds_of_messages", &EXCHANGE, 5);
}

/// By way of libfabric's own layer, which takes connections of us: `FI_EP_MSG`.
#[test]
fn ranks_exchange_all_kinds_of_messages_by_connected_endpoints() {
    let program = or_skip!(EXCHANGE.path());
    for ranks in [2, 5] {
        let mut command = mpirun_with(ranks, LAYERED);
        command.env("FI_PROVIDER", LAYERED).env("FI_LANDFALL_IFACE", "lo");
        command.arg(program).arg("windows");
        expect_all_well(&run(command, LIMIT));
    }
}

#[test]
fn kernels_of_real_programs_are_right_over_two_ranks() {
    check("kernels_of_real_programs_are_right_over_two_ranks", &KERNELS, 2);
}

#[test]
fn kernels_of_real_programs_are_right_over_sixteen_ranks() {
    check("kernels_of_real_programs_are_right_over_sixteen_ranks", &KERNELS, 16);
}

#[test]
fn programs_in_python_send_objects_and_arrays() {
    // The system's may have it where another one comes first in the path.
    let has_mpi = |python: &&str| {
        let tried = Command::new(python).args(["-c", "import mpi4py"]).output();
        tried.is_ok_and(|output| output.status.success())
    };
    let python = ["python3", "/usr/bin/python3"].into_iter().find(has_mpi);
    let python = or_skip!(python.ok_or("mpi4py is missing (Debian: python3-mpi4py)"));
    let mut command = mpirun(3);
    command.env("FI_LANDFALL_IFACE", "lo").arg(python).arg(here().join("tests/mpi/objects.py"));
    expect_all_well(&run(command, LIMIT));
}

/// One of three ranks is killed while the others wait for it: `mpirun` says which, and ends all.
#[test]
fn a_rank_that_is_killed_is_told_and_ends_the_others() {
    let program = or_skip!(KILLED.path());
    let mut command = mpirun(3);
    command.env("FI_LANDFALL_IFACE", "lo").arg(program);
    let began = Instant::now();
    let output = run(command, LIMIT);
    let said = text(&output);
    assert!(!output.status.success() && said.contains("signal 9"), "{said}");
    assert!(began.elapsed() < LIMIT, "{said}");
}

/// In the place of `ssh`: a script that goes to another machine.
pub(crate) fn agent(machine: &Namespace) -> TemporaryFolder {
    let folder = TemporaryFolder::new("mpi-agent");
    let descriptor = machine.as_fd().as_raw_fd();
    let namespace = format!("/proc/{}/fd/{descriptor}", std::process::id());
    // What MPICH gives before the name of the machine ssh would understand.
    let script = format!(
        "#!/bin/bash\n[ \"$1\" != -x ] || shift\nshift\n\
         exec nsenter --net={namespace} bash -c \"$*\"\n"
    );
    let path = folder.path().join("agent");
    std::fs::write(&path, script).unwrap();
    std::fs::set_permissions(&path, Permissions::from_mode(0o755)).unwrap();
    folder
}

/// Two machines with a cable between them.
pub(crate) struct Machines {
    cable: VethPair,
    folder: TemporaryFolder,
}

impl Machines {
    pub(crate) const fn cable(&self) -> &VethPair {
        &self.cable
    }

    pub(crate) fn new() -> Self {
        let cable = VethPair::new(VethConfig::default()).unwrap();
        let folder = agent(&cable.b.namespace);
        Self { cable, folder }
    }

    pub(crate) fn agent(&self) -> PathBuf {
        self.folder.path().join("agent")
    }

    pub(crate) fn addresses(&self) -> [String; 2] {
        [&self.cable.a, &self.cable.b].map(|end| end.ipv4.to_string())
    }

    /// Runs something on the first.
    pub(crate) fn run(&self, command: Command, limit: Duration) -> Output {
        self.cable.a.namespace.enter(move || run(command, limit)).unwrap()
    }
}

/// As between two machines, with a key that `mpirun` hands on.
#[test]
fn ranks_on_two_hosts_exchange_all_kinds_of_messages() {
    require_namespaces!();
    let program = or_skip!(EXCHANGE.path());
    let machines = Machines::new();
    let [here, there] = machines.addresses();
    let mut command = mpirun(2);
    command.arg("--host").arg(format!("{here}:1,{there}:1"));
    command.args(["--mca", "plm_rsh_agent"]).arg(machines.agent());
    command.env("FI_LANDFALL_KEY", "3c".repeat(32));
    command.args(["-x", "FI_PROVIDER_PATH", "-x", "FI_LANDFALL_KEY"]).arg(program);
    expect_all_well(&machines.run(command, LIMIT));
}
