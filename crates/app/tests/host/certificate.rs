//! Generates a self-signed certificate for one name. Implements only the parts of X.509
//! that the tests need, instead of depending on a library.

use anyhow::{Result, anyhow};
use aws_lc_rs::encoding::AsDer as _;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{ECDSA_P256_SHA256_ASN1_SIGNING, EcdsaKeyPair, KeyPair as _};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;

const SEQUENCE: u8 = 0x30;
const OBJECT: u8 = 0x06;
const BITS: u8 = 0x03;

/// ecdsa-with-SHA256
const SIGNATURE: &[u8] = &[0x2a, 0x86, 0x48, 0xce, 0x3d, 0x04, 0x03, 0x02];
/// subjectAltName
const OTHER_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// commonName
const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];

/// Certificate and key, as PEM.
pub(crate) struct SelfSigned {
    pub(crate) certificate: String,
    pub(crate) key: String,
}

/// Generates a key and a certificate that is valid for a hundred years.
pub(crate) fn self_signed(name: &str) -> Result<SelfSigned> {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_ASN1_SIGNING)
        .map_err(|_| anyhow!("cannot generate a key"))?;
    let algorithm = der(SEQUENCE, &[&der(OBJECT, &[SIGNATURE])]);
    let common = der(SEQUENCE, &[&der(OBJECT, &[COMMON_NAME]), &der(0x0c, &[name.as_bytes()])]);
    let whom = der(SEQUENCE, &[&der(0x31, &[&common])]);
    let validity = der(SEQUENCE, &[&der(0x17, &[b"250101000000Z"]), &der(0x18, &[b"21250101000000Z"])]);
    let alternatives = der(SEQUENCE, &[&der(0x82, &[name.as_bytes()])]);
    let extension = der(SEQUENCE, &[&der(OBJECT, &[OTHER_NAMES]), &der(0x04, &[&alternatives])]);
    let body = der(
        SEQUENCE,
        &[
            &der(0xa0, &[&der(0x02, &[&[2]])]),
            &der(0x02, &[&[1]]),
            &algorithm,
            &whom,
            &validity,
            &whom,
            pair.public_key().as_der()?.as_ref(),
            &der(0xa3, &[&der(SEQUENCE, &[&extension])]),
        ],
    );
    let signature = pair.sign(&SystemRandom::new(), &body).map_err(|_| anyhow!("cannot sign"))?;
    let certificate = der(SEQUENCE, &[&body, &algorithm, &der(BITS, &[&[0], signature.as_ref()])]);
    let key = pair.to_pkcs8v1().map_err(|_| anyhow!("cannot encode the key"))?;
    Ok(SelfSigned { certificate: pem("CERTIFICATE", &certificate), key: pem("PRIVATE KEY", key.as_ref()) })
}

/// Encodes a value with tag and length.
fn der(tag: u8, parts: &[&[u8]]) -> Vec<u8> {
    let content = parts.concat();
    let mut value = vec![tag];
    match u16::try_from(content.len()).unwrap_or(u16::MAX).to_be_bytes() {
        [0, length @ ..=0x7f] => value.push(length),
        [0, length] => value.extend([0x81, length]),
        [high, low] => value.extend([0x82, high, low]),
    }
    value.extend(content);
    value
}

fn pem(label: &str, bytes: &[u8]) -> String {
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", STANDARD.encode(bytes))
}
