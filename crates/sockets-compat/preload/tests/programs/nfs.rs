//! A file tree served by nfs-ganesha (its VFS backend, NFS 4 alone) and read and written by
//! libnfs: RPC over sockets, as in section 6.2 of the paper on CLAN.
//!
//! The tree lies in a tmpfs that only the server sees: the backend asks for file handles,
//! which not every file system that a temporary folder may be on can give.

use landfall_testbed::skip_unless;

use crate::ground::{Ground, each, missing};

fn why_not() -> Option<String> {
    missing(&["ganesha.nfsd", "nfs-ls", "nfs-cp", "nfs-cat", "unshare", "sh"])
        .or_else(landfall_testbed::privileges::why_no_namespaces)
}

fn configuration(port: u16) -> String {
    format!(
        "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = {port}; Bind_addr = 127.0.0.1;\n\
         \x20   Enable_NLM = false; Enable_RQUOTA = false; }}\n\
         NFS_KRB5 {{ Active_krb5 = false; }}\n\
         NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = /run/recovery; }}\n\
         EXPORT {{ Export_Id = 1; Path = /run/tree; Pseudo = /tree; Protocols = 4;\n\
         \x20   Transports = TCP; Access_Type = RW; Squash = none; SecType = sys;\n\
         \x20   FSAL {{ Name = VFS; }} }}\n"
    )
}

#[test]
fn nfs_files_are_read_and_written() {
    skip_unless!(why_not());
    let ground = Ground::new();
    std::fs::create_dir_all(ground.path("tree")).expect("a folder");
    let lengths = [1, 4095, 4097, 65_536, 1 << 20, 3_145_729];
    for len in lengths {
        ground.file(&format!("tree/{len}"), len);
    }
    each(|place| {
        let port = ground.port();
        let config = ground.write("ganesha.conf", configuration(port).as_bytes());
        let script = format!(
            "mount -t tmpfs none /run && mkdir /run/recovery /run/tree \
             && cp '{}'/* /run/tree/ \
             && exec ganesha.nfsd -F -L STDERR -p /run/ganesha.pid -f '{config}'",
            ground.path("tree")
        );
        let _server = ground.serve(place, port, "unshare", &["-m", "sh", "-c", &script]);
        let url = |name: &str| format!("nfs://127.0.0.1/tree/{name}?version=4&nfsport={port}");
        let listing = ground.run_text(place, "nfs-ls", &[&url("")]);
        for len in lengths {
            let name = len.to_string();
            assert!(listing.lines().any(|line| line.ends_with(&format!(" {name}"))), "{listing}");
            let (copy, there) = (ground.path("copy"), ground.path(&format!("tree/{name}")));
            let bytes = std::fs::read(&there).expect("the file");
            ground.run(place, "nfs-cp", &[&url(&name), &copy]);
            assert!(std::fs::read(&copy).expect("a copy") == bytes, "{place:?}: {name}");
            std::fs::remove_file(copy).expect("the copy");
        }
        // What `nfs-cp` writes at once: of longer files this server refuses its writes,
        // with or without the library.
        for len in 1..20 {
            let (note, there) = (vec![len; 40 * usize::from(len)], url(&format!("note-{len}")));
            let here = ground.write("note", &note);
            ground.run(place, "nfs-cp", &[&here, &there]);
            assert!(ground.run(place, "nfs-cat", &[&there]) == note, "{place:?}: {len} back");
        }
        ground.expect_memory(place);
    });
}
