//! A file tree served by nfs-ganesha from a file system (its VFS backend), and copied by
//! libnfs at two hosts at a time.
//!
//! NFS 4 only: it needs neither rpcbind nor anything else beside the server. The tree
//! lies in a tmpfs of the server's own: the backend asks for file handles, which not
//! every file system that a temporary folder may be on can give (overlayfs for one).

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;
use std::thread;

use landfall_testbed::{require_namespaces, skip_unless};

use super::hosts::{Folder, Server, Triangle, address, bytes, stop_all, why_missing};

/// Files by their paths in the tree.
type Tree = BTreeMap<String, Vec<u8>>;

/// What is hard to get right somewhere: in a shell, a URL, a listing, an encoding. (A
/// question mark, with which libnfs begins its options, and a line feed, with which
/// `nfs-ls` ends a name, cannot be said to these clients.)
const ODD_NAMES: [&str; 13] = [
    "two words",
    " before",
    "after ",
    "-dash",
    ".hidden",
    "per%41cent",
    "number#sign",
    "quotes'\"`",
    "plus+and&equals=",
    "back\\slash",
    "semicolon;colon:",
    "star*[a-z]{1,2}",
    "Größe 漢字 🦀",
];

/// Some hundred files: many small ones, lengths around those of packets, pages and
/// reads, some of several MiB; folders in folders, an empty one, odd names.
fn grow() -> Tree {
    let mut tree = Tree::new();
    let mut plant = |name: String, len: usize| {
        let content = bytes(tree.len(), len);
        tree.insert(name, content);
    };
    for nth in 0..150 {
        plant(format!("small/{}/{}/file-{nth}", nth % 3, nth % 10), nth * 7);
    }
    for around in [1448, 4096, 8948, 9000, 65_536, 1 << 20] {
        for len in [around - 1, around, around + 1] {
            plant(format!("around/{len}"), len);
        }
    }
    for (nth, len) in [2_000_000, 3_145_729, 4 << 20].into_iter().enumerate() {
        plant(format!("large/{nth}"), len);
    }
    for (nth, name) in ODD_NAMES.iter().enumerate() {
        plant((*name).into(), 100 + nth);
        plant(format!("folder {name}/inside"), 200 + nth);
    }
    plant("l".repeat(255), 1000);
    // As deep as `nfs-ls` goes.
    plant(format!("{}deep", "d/".repeat(15)), 5000);
    tree
}

fn write(tree: &Tree, root: &Path) {
    for (name, content) in tree {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, content).unwrap();
    }
    fs::create_dir(root.join("empty")).unwrap();
}

fn serve_nfs(triangle: &Triangle, here: usize, folder: &Folder) -> Server {
    let config = format!(
        "NFS_CORE_PARAM {{ Protocols = 4; NFS_Port = 2049; Bind_addr = {};\n\
         \x20   Enable_NLM = false; Enable_RQUOTA = false; }}\n\
         NFS_KRB5 {{ Active_krb5 = false; }}\n\
         NFSv4 {{ Graceless = true; RecoveryBackend = fs; RecoveryRoot = /run/recovery; }}\n\
         EXPORT {{ Export_Id = 1; Path = /run/tree; Pseudo = /tree; Protocols = 4;\n\
         \x20   Transports = TCP; Access_Type = RW; Squash = none; SecType = sys;\n\
         \x20   FSAL {{ Name = VFS; }} }}\n",
        address(here)
    );
    let config = folder.write("ganesha.conf", &config);
    let script = format!(
        "mount -t tmpfs none /run\nmkdir /run/recovery /run/tree\ncp -a '{}/.' /run/tree/\n\
         exec ganesha.nfsd -F -L STDERR -p /run/ganesha.pid -f '{}'\n",
        folder.path("tree"),
        config.display()
    );
    triangle.serve(here, &folder.write("serve.sh", &script))
}

fn url(server: usize, name: &str) -> String {
    format!("nfs://{}/tree/{name}?version=4", address(server))
}

/// Names and lengths of the files in a listing: mode, links, two owners, length, name.
fn listed(listing: &str) -> BTreeMap<String, usize> {
    let files = listing.lines().filter(|line| line.starts_with('-')).map(|line| {
        let mut rest = line;
        let mut word = || {
            let (word, after) = rest.trim_start().split_once(' ').unwrap();
            rest = after;
            word
        };
        let len = [word(), word(), word(), word(), word()][4].parse().unwrap();
        (rest.to_owned(), len)
    });
    files.collect()
}

/// Copies the whole tree to one host, and compares.
fn copy_tree(triangle: &Triangle, (here, server): (usize, usize), tree: &Tree, to: &Folder) {
    let listing = triangle.run_until_it_succeeds(here, &["nfs-ls", "-R", &url(server, "")]);
    let expected: BTreeMap<_, _> =
        tree.iter().map(|(name, content)| (name.clone(), content.len())).collect();
    assert_eq!(listed(&listing), expected);
    assert!(listing.lines().any(|line| line.starts_with('d') && line.ends_with(" empty")));
    let copy = to.path(&format!("copy-{here}"));
    for (name, content) in tree {
        triangle.run(here, &["nfs-cp", &url(server, name), &copy]);
        assert!(fs::read(&copy).unwrap() == *content, "{name} at host {here}");
        // It goes nowhere where something is already.
        fs::remove_file(&copy).unwrap();
    }
}

#[test]
fn a_file_tree_of_nfs_ganesha_arrives_at_two_hosts_as_it_is() {
    require_namespaces!();
    skip_unless!(why_missing(&["ganesha.nfsd", "nfs-ls", "nfs-cp", "nfs-cat", "unshare"]));
    let triangle = Triangle::new();
    let hosts = [0, 1, 2].map(|here| triangle.start(here));
    let folder = Folder::new("nfs");
    let tree = grow();
    write(&tree, &folder.0.join("tree"));
    let server = 2;
    let _server = serve_nfs(&triangle, server, &folder);
    thread::scope(|scope| {
        for here in [0, 1] {
            let (triangle, tree, folder) = (&triangle, &tree, &folder);
            scope.spawn(move || copy_tree(triangle, (here, server), tree, folder));
        }
    });
    // What one host writes, another one reads.
    let said = "written at the first host, read at the second\n".repeat(20);
    let note = folder.write("note", &said);
    triangle.run(0, &["nfs-cp", &note.to_string_lossy(), &url(server, "around/note")]);
    assert_eq!(triangle.run(1, &["nfs-cat", &url(server, "around/note")]), said);
    stop_all(hosts);
}
