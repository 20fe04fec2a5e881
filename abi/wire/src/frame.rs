//! Framing: a little-endian `u32` length, then that many bytes of postcard.

use serde::{Serialize, de::DeserializeOwned};

/// Larger messages are refused by both ends. Unit: bytes.
pub const MAX_MESSAGE: usize = 1 << 30;

/// A message that cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The bytes are no message of this protocol.
    #[error("malformed message: {0}")]
    Malformed(#[from] postcard::Error),
    /// Past [`MAX_MESSAGE`].
    #[error("message of {0} bytes is larger than the protocol allows")]
    TooLarge(usize),
}

/// The framed bytes of `message`: length prefix and body.
pub fn encode<T: Serialize>(message: &T) -> Result<Vec<u8>, FrameError> {
    let mut bytes = postcard::to_extend(message, vec![0_u8; 4])?;
    let length = bytes.len() - 4;
    if length > MAX_MESSAGE {
        return Err(FrameError::TooLarge(length));
    }
    bytes[..4].copy_from_slice(&(length as u32).to_le_bytes());
    Ok(bytes)
}

/// The length announced by a prefix.
pub fn body_length(prefix: [u8; 4]) -> Result<usize, FrameError> {
    let length = u32::from_le_bytes(prefix) as usize;
    if length > MAX_MESSAGE { Err(FrameError::TooLarge(length)) } else { Ok(length) }
}

/// The message in a body (without its prefix).
pub fn decode<T: DeserializeOwned>(body: &[u8]) -> Result<T, FrameError> {
    Ok(postcard::from_bytes(body)?)
}
