//! An object file to flat, position-independent code: text and read-only data side by side, their references resolved.

use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget, SectionKind};
use std::collections::BTreeMap;

/// Code with its constants, and the offset of its function.
#[derive(Debug, PartialEq, Eq)]
pub struct Flat {
    pub code: Vec<u8>,
    pub entry: usize,
}

/// Flattens an object whose only outside interface is the function `entry`. Undefined symbols, writable data and
/// relocations other than PC-relative ones are refused: nothing would fill them in.
pub fn flatten(object: &[u8], entry: &str) -> Result<Flat, String> {
    let file: ElfFile64<'_> = ElfFile64::parse(object).map_err(|e| format!("unreadable object: {e}"))?;
    let mut code = Vec::new();
    let mut places = BTreeMap::new();
    for section in file.sections() {
        match section.kind() {
            SectionKind::Text | SectionKind::ReadOnlyData | SectionKind::ReadOnlyString if section.size() > 0 => {
                let align = (section.align() as usize).clamp(1, 64);
                code.resize(code.len().next_multiple_of(align), 0xcc);
                places.insert(section.index().0, code.len());
                code.extend_from_slice(section.data().map_err(|e| e.to_string())?);
            }
            SectionKind::Data
            | SectionKind::UninitializedData
            | SectionKind::ReadOnlyDataWithRel
            | SectionKind::Tls
                if section.size() > 0 =>
            {
                return Err(format!("writable section {}", section.name().unwrap_or("?")));
            }
            _ => {}
        }
    }
    for section in file.sections().filter(|s| places.contains_key(&s.index().0)) {
        for (offset, relocation) in section.relocations() {
            let at = places[&section.index().0] + offset as usize;
            let RelocationTarget::Symbol(symbol) = relocation.target() else {
                return Err("a relocation without a symbol".to_owned());
            };
            let symbol = file.symbol_by_index(symbol).map_err(|e| e.to_string())?;
            let home = symbol
                .section_index()
                .and_then(|s| places.get(&s.0))
                .ok_or_else(|| format!("undefined symbol {}", symbol.name().unwrap_or("?")))?;
            let RelocationFlags::Elf { r_type: object::elf::R_X86_64_PC32 | object::elf::R_X86_64_PLT32 } =
                relocation.flags()
            else {
                return Err(format!("relocation {:?}", relocation.flags()));
            };
            let target = *home as i64 + symbol.address() as i64 + relocation.addend();
            let value = i32::try_from(target - at as i64).map_err(|_| "a reference that is too far".to_owned())?;
            let field = code.get_mut(at..at + 4).ok_or("a relocation outside of its section")?;
            field.copy_from_slice(&value.to_le_bytes());
        }
    }
    let symbol = file.symbols().find(|s| s.is_global() && s.name() == Ok(entry)).ok_or("the function is missing")?;
    let home = symbol.section_index().and_then(|s| places.get(&s.0)).ok_or("the function has no code")?;
    Ok(Flat { entry: home + symbol.address() as usize, code })
}
