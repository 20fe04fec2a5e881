//! Framing: a little-endian `u32` length, the blake3 of the body, then that many bytes of postcard. A message whose bytes
//! changed on the way ends the connection; nothing of it is used.

use serde::{Serialize, de::DeserializeOwned};

/// Larger messages are refused by both ends. Unit: bytes.
pub const MAX_MESSAGE: usize = 1 << 30;

/// Bytes before a body.
pub const PREFIX: usize = 4 + 32;

/// What stands before a body.
pub type Prefix = [u8; PREFIX];

/// A message that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The bytes are no message of this protocol.
    #[error("malformed message: {0}")]
    Malformed(#[from] postcard::Error),
    /// Not what was sent.
    #[error("a message was changed on its way")]
    Changed,
    /// Past [`MAX_MESSAGE`].
    #[error("message of {0} bytes is larger than the protocol allows")]
    TooLarge(usize),
}

/// The framed bytes of `message`: prefix and body.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut bytes = postcard::to_extend(message, vec![0_u8; PREFIX])?;
    seal(&mut bytes)?;
    Ok(bytes)
}

/// Fills in the prefix of a body that starts at [`PREFIX`].
pub fn seal(bytes: &mut [u8]) -> Result<(), FrameError> {
    let Some((prefix, body)) = bytes.split_first_chunk_mut::<PREFIX>() else { return Err(FrameError::Changed) };
    if body.len() > MAX_MESSAGE {
        return Err(FrameError::TooLarge(body.len()));
    }
    prefix[..4].copy_from_slice(&(body.len() as u32).to_le_bytes());
    prefix[4..].copy_from_slice(blake3::hash(body).as_bytes());
    Ok(())
}

/// The length announced by a prefix.
pub fn body_length(prefix: &Prefix) -> Result<usize, FrameError> {
    let length = u32::from_le_bytes([prefix[0], prefix[1], prefix[2], prefix[3]]) as usize;
    if length > MAX_MESSAGE { Err(FrameError::TooLarge(length)) } else { Ok(length) }
}

/// The message in a body that came after this prefix.
pub fn decode<T: DeserializeOwned>(prefix: &Prefix, body: &[u8]) -> Result<T, FrameError> {
    if blake3::hash(body).as_bytes()[..] != prefix[4..] {
        return Err(FrameError::Changed);
    }
    Ok(postcard::from_bytes(body)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_byte_and_every_cut_is_noticed() {
        let bytes = encode(&("a message", 7_u32)).unwrap();
        let read = |bytes: &[u8]| {
            let (prefix, body) = bytes.split_first_chunk::<PREFIX>()?;
            (body_length(prefix).ok()? == body.len()).then(|| decode::<(String, u32)>(prefix, body).ok())?
        };
        assert_eq!(read(&bytes), Some(("a message".to_owned(), 7)));
        for at in 0..bytes.len() {
            let mut bad = bytes.clone();
            bad[at] ^= 0x10;
            assert_eq!(read(&bad), None, "byte {at}");
            assert_eq!(read(&bytes[..at]), None, "cut at {at}");
        }
    }
}
