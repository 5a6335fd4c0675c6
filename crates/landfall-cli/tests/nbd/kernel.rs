//! Unmodified clients, whose TCP is the kernel's, of a server whose TCP is that of an adapter of
//! queue pairs, on a TAP interface. As an ordinary user these skip with one line.

use std::fs;

use landfall_testbed::{Namespace, require_namespaces};
use landfall_testkit::skip_unless;

use super::{Folder, Server};
use crate::services::{client_in, text, why_missing};

/// A device with 16 MiB in a file, served at the usual address.
fn serve(host: &Namespace, folder: &Folder, more: &[&str]) -> (Server, String) {
    let disk = folder.path("disk");
    fs::File::create(&disk).unwrap().set_len(16 << 20).unwrap();
    let export = format!("disk=file:{disk}");
    let usual = ["--export", &export, "--listen", "qp://10.9.0.2:10809"];
    let server = host.enter(|| Server::start(&[&usual[..], more].concat())).unwrap();
    (server, disk)
}

const URI: &str = "nbd://10.9.0.2/disk";

fn hash(path: &str) -> blake3::Hash {
    blake3::hash(&fs::read(path).unwrap())
}

#[test]
fn nbdcopy_and_nbdinfo_use_a_server_of_queue_pairs() {
    require_namespaces!();
    skip_unless!(why_missing(&["nbdcopy", "nbdinfo"]));
    let (host, folder) = (Namespace::new().unwrap(), Folder::new("nbdcopy"));
    let (server, disk) = serve(&host, &folder, &[]);
    let (source, back) = (folder.path("source"), folder.path("back"));
    fs::write(&source, crate::serve::noise(8 << 20)).unwrap();
    fs::OpenOptions::new().write(true).open(&source).unwrap().set_len(16 << 20).unwrap();
    text(client_in(&host, &["nbdcopy", "--flush", "--connections=4", &source, URI]));
    assert_eq!(hash(&disk), hash(&source));
    text(client_in(&host, &["nbdcopy", "--connections=4", URI, &back]));
    assert_eq!(hash(&back), hash(&source));
    let told = text(client_in(&host, &["nbdinfo", "--json", URI]));
    assert!(told.contains("\"export-size\": 16777216"), "{told}");
    assert!(told.contains("\"can_multi_conn\": true"), "{told}");
    assert!(server.end());
}

#[test]
fn qemu_and_fio_use_a_server_of_queue_pairs() {
    require_namespaces!();
    skip_unless!(why_missing(&["qemu-io", "qemu-img", "fio"]));
    let (host, folder) = (Namespace::new().unwrap(), Folder::new("qemu"));
    let (server, disk) = serve(&host, &folder, &[]);
    let mut words = vec!["qemu-io", "-f", "raw", URI];
    for command in [
        "write -P 7 0 1M",
        "write -z -u 4096 64k",
        "write -f -P 9 1M 4k",
        "aio_write -P 5 5M 1M",
        "aio_flush",
        "flush",
        "read -P 0 4096 64k",
        "read -P 7 68k 64k",
        "read -P 9 1M 4k",
        "read -P 5 5M 1M",
        "discard 3M 1M",
    ] {
        words.extend(["-c", command]);
    }
    let told = text(client_in(&host, &words));
    assert!(!told.contains("failed"), "{told}");
    assert_eq!(fs::read(&disk).unwrap()[1 << 20..(1 << 20) + 4096], [9; 4096]);
    let compare = ["qemu-img", "compare", "-f", "raw", "-F", "raw", &disk, URI];
    assert!(text(client_in(&host, &compare)).contains("identical"));
    let (uri, state) = (format!("--uri={URI}"), format!("--aux-path={}", folder.path("")));
    let job = ["fio", "--name=job", "--ioengine=nbd", &uri, &state, "--rw=randrw"];
    let load = ["--bsrange=512-64k", "--iodepth=16", "--verify=crc32c", "--size=16M"];
    let told = text(client_in(&host, &[&job[..], &load].concat()));
    assert!(told.contains("err= 0"), "{told}");
    assert!(server.end());
}

#[test]
fn nbdinfo_has_tls_with_a_server_of_queue_pairs() {
    require_namespaces!();
    skip_unless!(why_missing(&["nbdinfo"]));
    let (host, folder) = (Namespace::new().unwrap(), Folder::new("nbdinfo-tls"));
    let (server, _) = serve(&host, &folder, &["--tls-self-signed", "--tls-required"]);
    let told = text(client_in(&host, &["nbdinfo", "nbds://10.9.0.2/disk?tls-verify-peer=false"]));
    assert!(told.contains("with TLS"), "{told}");
    assert!(!client_in(&host, &["nbdinfo", URI]).status.success());
    assert!(server.end());
}
