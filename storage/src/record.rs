//! The envelope of an index record: version, body length, blake3 of the body, body.

/// Bumped when the meaning of any record changes; older records are then misses.
const VERSION: u8 = 1;
const HEADER: usize = 1 + 4 + 32;

/// What is wrong with a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Written by another version of this crate.
    #[error("record version {0}")]
    Version(u8),
    /// Shorter or longer than it says.
    #[error("record length")]
    Length,
    /// The body is not what was written.
    #[error("record hash")]
    Hash,
}

/// `body` in its envelope.
pub fn seal(body: &[u8]) -> Vec<u8> {
    let mut sealed = Vec::with_capacity(HEADER + body.len());
    sealed.push(VERSION);
    sealed.extend_from_slice(&(body.len() as u32).to_le_bytes());
    sealed.extend_from_slice(blake3::hash(body).as_bytes());
    sealed.extend_from_slice(body);
    sealed
}

/// The first of sealed records that follow each other, and the rest; `None` where it is not whole.
pub fn first(records: &[u8]) -> Option<(&[u8], &[u8])> {
    let length = records.get(1..5)?.first_chunk().map(|length| u32::from_le_bytes(*length))?;
    records.split_at_checked(HEADER + length as usize)
}

/// The body of a sealed record, if everything about it checks.
pub fn open(sealed: &[u8]) -> Result<&[u8], RecordError> {
    match sealed.first() {
        Some(&VERSION) => {}
        Some(&other) => return Err(RecordError::Version(other)),
        None => return Err(RecordError::Length),
    }
    let (header, body) = sealed.split_at_checked(HEADER).ok_or(RecordError::Length)?;
    let length = u32::from_le_bytes([header[1], header[2], header[3], header[4]]);
    if length as usize != body.len() {
        return Err(RecordError::Length);
    }
    if blake3::hash(body).as_bytes()[..] != header[5..] {
        return Err(RecordError::Hash);
    }
    Ok(body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_flipped_byte_and_every_truncation_is_noticed() {
        let sealed = seal(b"a small record");
        assert_eq!(open(&sealed), Ok(&b"a small record"[..]));
        for at in 0..sealed.len() {
            let mut bad = sealed.clone();
            bad[at] ^= 0x40;
            assert!(open(&bad).is_err(), "byte {at}");
            assert!(open(&sealed[..at]).is_err(), "cut at {at}");
        }
    }
}
