//! Location and exception tables, whose format CPython 3.11 and later share (`Objects/locations.md`,
//! `Objects/exception_handling_notes.txt`).

use crate::DecodeError;

/// Line per code unit; `None` where there is no line.
pub fn lines(table: &[u8], firstline: u32, units: usize) -> Result<Vec<Option<u32>>, DecodeError> {
    let mut lines = Vec::with_capacity(units);
    let mut bytes = Bytes { data: table, at: 0 };
    let mut line = i64::from(firstline);
    while let Some(first) = bytes.next() {
        let (code, length) = ((first >> 3) & 15, usize::from(first & 7) + 1);
        let malformed = || DecodeError::LocationTable;
        if code == 15 {
            lines.resize(lines.len() + length, None);
            continue;
        }
        // Forms 0-9 keep the line, 10-12 add 0-2, 13 and 14 carry a signed number; then come columns.
        let skip = match code {
            0..=9 => 1,
            10..=12 => {
                line += i64::from(code - 10);
                2
            }
            _ => {
                line += signed(bytes.little().ok_or_else(malformed)?);
                0
            }
        };
        for _ in 0..skip {
            bytes.next().ok_or_else(malformed)?;
        }
        if code == 14 {
            for _ in 0..3 {
                bytes.little().ok_or_else(malformed)?;
            }
        }
        lines.resize(lines.len() + length, u32::try_from(line).ok());
    }
    lines.resize(units, None);
    Ok(lines)
}

/// An exception table entry in code units.
pub struct Entry {
    pub start: u32,
    pub length: u32,
    pub target: u32,
    pub depth: u32,
    pub lasti: bool,
}

/// The entries in order.
pub fn exceptions(table: &[u8]) -> Result<Vec<Entry>, DecodeError> {
    let mut bytes = Bytes { data: table, at: 0 };
    let mut entries = Vec::new();
    while bytes.at < table.len() {
        let mut field = || bytes.big().ok_or(DecodeError::ExceptionTable);
        let (start, length, target, depth) = (field()?, field()?, field()?, field()?);
        entries.push(Entry { start, length, target, depth: depth >> 1, lasti: depth & 1 != 0 });
    }
    Ok(entries)
}

struct Bytes<'a> {
    data: &'a [u8],
    at: usize,
}

impl Bytes<'_> {
    fn next(&mut self) -> Option<u8> {
        let byte = self.data.get(self.at).copied();
        self.at += 1;
        byte
    }

    /// Six bits a byte, least significant first, bit 6 set while more follow.
    fn little(&mut self) -> Option<u64> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let byte = self.next()?;
            value |= u64::from(byte & 63).checked_shl(shift)?;
            shift += 6;
            if byte & 64 == 0 {
                return Some(value);
            }
        }
    }

    /// Six bits a byte, most significant first.
    fn big(&mut self) -> Option<u32> {
        let mut value = 0_u32;
        loop {
            let byte = self.next()?;
            value = value.checked_mul(64)? | u32::from(byte & 63);
            if byte & 64 == 0 {
                return Some(value);
            }
        }
    }
}

/// The lowest bit is the sign.
fn signed(value: u64) -> i64 {
    let magnitude = (value >> 1) as i64;
    if value & 1 == 0 { magnitude } else { -magnitude }
}
