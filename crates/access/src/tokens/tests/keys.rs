//! Keys of all supported algorithms and encodings.

use aws_lc_rs::encoding::EcPrivateKeyRfc5915Der;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED_SIGNING, ECDSA_P256K1_SHA256_FIXED_SIGNING, ECDSA_P384_SHA384_FIXED_SIGNING,
    ECDSA_P521_SHA512_FIXED_SIGNING,
};

use super::super::key::blocks;
use super::*;

#[test]
fn pem_blocks_are_found_among_comments() {
    let text = "a comment\n-----BEGIN A B-----\n  AQID\nBA==  \n-----END A B-----\n\n-----BEGIN BAD-----\n*\n-----END BAD-----\n\
                -----BEGIN BAD\n  -----BEGIN C-----\r\n  BQ==\r\n  -----END C-----\n-----BEGIN TRUNCATED-----\nBQ==";
    let found: Vec<(String, Vec<u8>)> = blocks(text).into_iter().map(|block| (block.label, block.contents)).collect();
    assert_eq!(found, [("A B".to_owned(), vec![1, 2, 3, 4]), ("C".to_owned(), vec![5])]);
    assert!(blocks("").is_empty());
}

#[test]
fn each_key_algorithm_verifies_its_own_signatures() {
    for (text, algorithm) in [
        (ecdsa_pem(&ECDSA_P256_SHA256_FIXED_SIGNING), Algorithm::Es256),
        (ecdsa_pem(&ECDSA_P384_SHA384_FIXED_SIGNING), Algorithm::Es384),
        (ecdsa_pem(&ECDSA_P521_SHA512_FIXED_SIGNING), Algorithm::Es512),
        (rsa_pem().to_owned(), Algorithm::Rs256),
    ] {
        let key = SigningKey::from_pem(&text).unwrap();
        assert_eq!(key.public().algorithm(), algorithm);
        let public = VerifyingKey::all_from_pem(&text).unwrap().remove(0);
        assert_eq!(public.id(), key.public().id());
        let signed = key.sign(b"message").unwrap();
        assert!(public.verify(b"message", &signed));
        assert!(!public.verify(b"massage", &signed));
        assert!(!public.verify(b"message", &signed[1..]));
    }
}

#[test]
fn signing_key_reads_sec1_and_pkcs1() {
    let pair = EcdsaKeyPair::generate(&ECDSA_P384_SHA384_FIXED_SIGNING).unwrap();
    let sec1 = AsDer::<EcPrivateKeyRfc5915Der<'_>>::as_der(&pair.private_key()).unwrap();
    // openssl writes the curve parameters before the key.
    let text = format!("{}{}", encode_pem("EC PARAMETERS", &[6, 1, 0]), encode_pem("EC PRIVATE KEY", sec1.as_ref()));
    assert_eq!(SigningKey::from_pem(&text).unwrap().public().algorithm(), Algorithm::Es384);

    // PKCS #1 is what PKCS #8 wraps: version, algorithm, and the key in an OCTET STRING.
    let pkcs8 = blocks(rsa_pem()).remove(0).contents;
    let at = pkcs8.windows(2).enumerate().filter(|(_, tag)| *tag == [0x30, 0x82]).nth(1).unwrap().0;
    let text = encode_pem("RSA PRIVATE KEY", &pkcs8[at..]);
    assert_eq!(SigningKey::from_pem(&text).unwrap().public().algorithm(), Algorithm::Rs256);
}

#[test]
fn unsupported_keys_are_rejected_with_their_label() {
    let other = ecdsa_pem(&ECDSA_P256K1_SHA256_FIXED_SIGNING);
    let words = "the PRIVATE KEY is neither RSA of 2048 to 8192 bits nor ECDSA on P-256, P-384 or P-521";
    assert_eq!(SigningKey::from_pem(&other).unwrap_err().to_string(), words);
    assert_eq!(VerifyingKey::all_from_pem(&other).unwrap_err().to_string(), words);
    let junk = encode_pem("PUBLIC KEY", b"junk");
    assert_eq!(
        VerifyingKey::all_from_pem(&junk).unwrap_err().to_string(),
        "the PUBLIC KEY is neither RSA of 2048 to 8192 bits nor ECDSA on P-256, P-384 or P-521"
    );
    let encrypted = encode_pem("ENCRYPTED PRIVATE KEY", b"junk");
    assert!(
        matches!(SigningKey::from_pem(&encrypted), Err(KeyError::Unsupported { label }) if label == "ENCRYPTED PRIVATE KEY")
    );
    for text in ["", "-----BEGIN CERTIFICATE-----\nAQID\n-----END CERTIFICATE-----\n"] {
        assert_eq!(SigningKey::from_pem(text).unwrap_err(), KeyError::NoPrivateKey);
        assert_eq!(VerifyingKey::all_from_pem(text).unwrap_err(), KeyError::NoKey);
    }
}

#[test]
fn signing_key_debug_shows_no_secret() {
    let shown = format!("{:?}", signing_key());
    assert!(shown.starts_with("SigningKey { public: VerifyingKey { algorithm: Es256, id: "), "{shown}");
}
