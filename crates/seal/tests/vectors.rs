//! Published vectors, with each provider.

use landfall_seal::provider::{Provider, RustCrypto};
use landfall_seal::{Aead, CipherKey, Forged, Suite, Tag};

struct Vector {
    suite: Suite,
    key: &'static str,
    nonce: &'static str,
    head: &'static str,
    plain: &'static str,
    sealed: &'static str,
    tag: &'static str,
}

/// NIST CAVP (`gcmEncryptExtIV128.rsp`, `gcmEncryptExtIV256.rsp`), and RFC 8439, 2.8.2.
const VECTORS: [Vector; 5] = [
    Vector {
        suite: Suite::Aes128Gcm,
        key: "11754cd72aec309bf52f7687212e8957",
        nonce: "3c819d9a9bed087615030b65",
        head: "",
        plain: "",
        sealed: "",
        tag: "250327c674aaf477aef2675748cf6971",
    },
    Vector {
        suite: Suite::Aes128Gcm,
        key: "d651166baf42b75adb26e370b76016e5",
        nonce: "4af70e3be1357501cbb16bca",
        head: "2c1072d5df5306e20d323a9897abac120bfb4d04",
        plain: "21d76d04488d4c33a7e8822797f785b43540bd374206966c9ef7832c51cc009f",
        sealed: "bc557572490f4d63811f8d83e58214ba4d8d24290264381838328a2962f010b2",
        tag: "8bd1f65c551c4affa517a8b03b6337e2",
    },
    Vector {
        suite: Suite::Aes256Gcm,
        key: "268ed1b5d7c9c7304f9cae5fc437b4cd3aebe2ec65f0d85c3918d3d3b5bba89b",
        nonce: "9ed9d8180564e0e945f5e5d4",
        head: "",
        plain: "fe29a40d8ebf57262bdb87191d01843f4ca4b2de97d88273154a0b7d9e2fdb80",
        sealed: "791a4a026f16f3a5ea06274bf02baab469860abde5e645f3dd473a5acddeecfc",
        tag: "05b2b74db0662550435ef1900e136b15",
    },
    Vector {
        suite: Suite::Aes256Gcm,
        key: "ecbfaef2345b34f31fbf6d68efb385e5833df8b6e6ae621ede02baf9735d2dba",
        nonce: "50c3527b1a35ccb318b446de",
        head: "f8981548bde6ee6c1745f947de191bf29997fadf",
        plain: "634f6dd60783d1f952353fd1d359b9ee4f4afa53cc13e81c5adfe24b46baf08f",
        sealed: "705e5f67ab889ba238118e3fd9b90b68be801995ae307378d93b50977cf90588",
        tag: "12d14468ac18cc9936bd565f8ad42d0d",
    },
    Vector {
        suite: Suite::ChaCha20Poly1305,
        key: "808182838485868788898a8b8c8d8e8f909192939495969798999a9b9c9d9e9f",
        nonce: "070000004041424344454647",
        head: "50515253c0c1c2c3c4c5c6c7",
        plain: "4c616469657320616e642047656e746c656d656e206f662074686520636c617373206f6620273939\
                3a204966204920636f756c64206f6666657220796f75206f6e6c79206f6e652074697020666f7220\
                746865206675747572652c2073756e73637265656e20776f756c642062652069742e",
        sealed: "d31a8d34648e60db7b86afbc53ef7ec2a4aded51296e08fea9e2b5a736ee62d63dbea45e8ca96712\
                 82fafb69da92728b1a71de0a9e060b2905d6a5b67ecd3b3692ddbd7f2d778b8c9803aee328091b58\
                 fab324e4fad675945585808b4831d7bc3ff4def08e4b7a9de576d26586cec64b6116",
        tag: "1ae10b594f09e26a7e902ecbd0600691",
    },
];

fn hex(text: &str) -> Vec<u8> {
    let byte = |at| u8::from_str_radix(&text[at..at + 2], 16).unwrap();
    (0..text.len()).step_by(2).map(byte).collect()
}

fn follows<A: Aead>(vector: &Vector) {
    let mut key = [0; 32];
    let bytes = hex(vector.key);
    assert_eq!(bytes.len(), vector.suite.key_len());
    key[..bytes.len()].copy_from_slice(&bytes);
    let cipher = A::new(vector.suite, &CipherKey::new(key));
    let nonce = hex(vector.nonce).try_into().unwrap();
    let (head, plain, sealed) = (hex(vector.head), hex(vector.plain), hex(vector.sealed));
    let tag = Tag(hex(vector.tag).try_into().unwrap());

    let mut payload = plain.clone();
    assert_eq!(cipher.seal(&nonce, &head, &mut payload), tag);
    assert_eq!(payload, sealed);
    let mut copy = vec![0; plain.len()];
    assert_eq!(cipher.seal_copy(&nonce, &head, &plain, &mut copy), tag);
    assert_eq!(copy, sealed);
    assert_eq!(cipher.open_copy(&nonce, &head, &sealed, &mut copy, &tag), Ok(()));
    assert_eq!(copy, plain);
    assert_eq!(cipher.open(&nonce, &head, &mut payload, &tag), Ok(()));
    assert_eq!(payload, plain);
    let mut other = tag;
    other.0[15] ^= 1;
    assert_eq!(cipher.open(&nonce, &head, &mut payload, &other), Err(Forged));
}

#[test]
fn each_provider_follows_the_published_vectors() {
    for vector in &VECTORS {
        follows::<RustCrypto>(vector);
        follows::<Provider>(vector);
    }
}
