//! The lines of the README, run as they stand there: a new user copies them.

use std::fs::Permissions;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::process::Command;
use std::time::Duration;

use landfall_testbed::require_namespaces;
use landfall_testkit::TemporaryFolder;
use landfall_testkit::skip_unless;

use crate::mpi::{Machines, expect_all_well};
use crate::tools::{here, provider_folder, run, text};

const LIMIT: Duration = Duration::from_secs(120);

/// All that is to be typed, block by block.
fn blocks() -> Vec<String> {
    let readme = std::fs::read_to_string(here().join("README.md")).unwrap();
    let parts = readme.split("```").skip(1).step_by(2);
    parts.filter_map(|block| block.strip_prefix("sh\n")).map(str::to_owned).collect()
}

/// A checkout whose provider is built already, with a home of its own.
struct Checkout(TemporaryFolder);

impl Checkout {
    fn new() -> Self {
        let folder = TemporaryFolder::new("fabric-readme");
        let path = folder.path();
        for folder in ["bin", "home", "target/release"] {
            std::fs::create_dir_all(path.join(folder)).unwrap();
        }
        symlink(here().parent().unwrap(), path.join("crates")).unwrap();
        let library = provider_folder().join("liblandfall-fi.so");
        symlink(library, path.join("target/release/liblandfall_fi.so")).unwrap();
        // This test was built with the library: there is nothing to do for cargo.
        let cargo = path.join("bin/cargo");
        let script = "#!/bin/sh\n[ \"$*\" = \"build --release -p landfall-libfabric\" ]\n";
        std::fs::write(&cargo, script).unwrap();
        std::fs::set_permissions(&cargo, Permissions::from_mode(0o755)).unwrap();
        Self(folder)
    }

    /// Runs lines as one who has just come would. The variables are what tests need anywhere:
    /// `mpirun` refuses root, and more ranks than cores.
    fn typing(&self, lines: &[&str]) -> Command {
        let path = self.0.path();
        let mut command = Command::new("bash");
        command.current_dir(path).args(["-e", "-u", "-c", &lines.concat()]);
        let programs = std::env::var("PATH").unwrap_or_default();
        command.env("PATH", format!("{}:{programs}", path.join("bin").display()));
        command.env("HOME", path.join("home")).env("CARGO_TARGET_DIR", path.join("target"));
        command.env_remove("FI_PROVIDER_PATH").env_remove("FI_PROVIDER");
        command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
        command.env("OMPI_MCA_rmaps_base_oversubscribe", "1");
        command
    }
}

/// What is missing to run them.
fn missing() -> Option<&'static str> {
    let has = |program: &str| Command::new(program).arg("--version").output().is_ok();
    let needed = [
        ("fi_info", "fi_info is needed (Debian: libfabric-bin)"),
        ("mpirun", "mpirun is needed (Debian: openmpi-bin)"),
        ("mpicc", "mpicc is needed (Debian: libopenmpi-dev)"),
    ];
    needed.into_iter().find(|(program, _)| !has(program)).map(|(_, why)| why)
}

#[test]
fn the_lines_of_the_readme_run_on_one_machine() {
    skip_unless!(missing());
    let blocks = blocks();
    let [install, mpi, ..] = &blocks[..] else { panic!("the README has other blocks: {blocks:?}") };
    let is_right = install.contains("fi_info -p landfall") && mpi.contains("mpirun -np 2");
    assert!(is_right, "the README has other blocks: {blocks:?}");
    let output = run(Checkout::new().typing(&[install, mpi]), LIMIT);
    assert!(text(&output).contains("provider: landfall"), "{}", text(&output));
    expect_all_well(&output);
}

#[test]
fn the_lines_of_the_readme_run_on_two_machines() {
    require_namespaces!();
    skip_unless!(missing());
    let blocks = blocks();
    let [install, mpi, several, ..] = &blocks[..] else {
        panic!("the README has other blocks: {blocks:?}")
    };
    assert!(several.contains("mpirun --hostfile hosts"), "{several}");
    let machines = Machines::new();
    let checkout = Checkout::new();
    let hosts = machines.addresses().map(|address| format!("{address} slots=1\n"));
    std::fs::write(checkout.0.path().join("hosts"), hosts.concat()).unwrap();
    let compile = mpi.lines().next().unwrap_or_default();
    let mut command = checkout.typing(&[install, compile, "\n", several]);
    command.env("OMPI_MCA_plm_rsh_agent", machines.agent());
    let output = machines.run(command, LIMIT);
    expect_all_well(&output);
}
