//! What torch's getters read, found in their code: a byte that a getter does nothing but read is read without calling it.

use std::ffi::c_void;

/// Words of memory, and which bits of each count. Without a destructor, which would make a thread-local of it dear.
#[derive(Clone, Copy)]
pub struct Words {
    all: [(*const u64, u64); Words::MOST],
    count: usize,
}

impl Default for Words {
    fn default() -> Self {
        Words { all: [(std::ptr::null(), 0); Words::MOST], count: 0 }
    }
}

impl Words {
    /// More than there are switches.
    const MOST: usize = 24;

    /// Adds a word.
    pub fn add(&mut self, word: *const u64) {
        self.add_bits(word, u64::MAX);
    }

    /// Adds a byte.
    pub fn add_byte(&mut self, byte: *const u8) {
        let within = byte as usize % size_of::<u64>();
        let mut bytes = [0; size_of::<u64>()];
        bytes[within] = u8::MAX;
        self.add_bits(byte.wrapping_sub(within).cast(), u64::from_ne_bytes(bytes));
    }

    fn add_bits(&mut self, word: *const u64, mask: u64) {
        if let Some((_, known)) = self.all[..self.count].iter_mut().find(|(known, _)| *known == word) {
            *known |= mask;
        } else {
            self.all[self.count] = (word, mask);
            self.count += 1;
        }
    }

    /// Gives what counts of each.
    ///
    /// # Safety
    /// Of each word at least a byte is readable still.
    #[inline]
    pub unsafe fn visit(&self, give: &mut impl FnMut(u64)) {
        for (word, mask) in self.all.iter().take(self.count) {
            // SAFETY: aligned, so that it is readable if a byte of it is.
            give(unsafe { word.read_volatile() } & mask);
        }
    }
}

/// Part of a function's code.
enum Part {
    Is(&'static [u8]),
    /// An operand that does not matter.
    Any,
    /// An operand of one byte.
    Short,
    /// An operand of four bytes.
    Long,
}

/// An operand of an instruction.
#[derive(Clone, Copy, Default)]
struct Operand {
    value: isize,
    /// The address after it, which code that may be loaded anywhere counts from.
    end: usize,
}

/// `movzx eax, byte ptr [rdi + operand]; ret`
const MEMBER: [&[Part]; 2] = [
    &[Part::Is(&[0x0f, 0xb6, 0x47]), Part::Short, Part::Is(&[0xc3])],
    &[Part::Is(&[0x0f, 0xb6, 0x87]), Part::Long, Part::Is(&[0xc3])],
];

/// `movzx eax, byte ptr [rip + operand]; ret`
const GLOBAL: [&[Part]; 1] = [&[Part::Is(&[0x0f, 0xb6, 0x05]), Part::Long, Part::Is(&[0xc3])]];

/// `lea rdi, [rip + operand]; call __tls_get_addr; movzx eax, byte ptr [rax + operand]; ret`, and the same for an element of an
/// array, at `[rbx + rax + operand]`, with what keeps stack and registers.
const THREAD: [&[Part]; 2] = [
    &[
        Part::Is(&[0x48, 0x83, 0xec, 0x08, 0x48, 0x8d, 0x3d]),
        Part::Long,
        Part::Is(&[0xe8]),
        Part::Any,
        Part::Is(&[0x0f, 0xb6, 0x80]),
        Part::Long,
        Part::Is(&[0x48, 0x83, 0xc4, 0x08, 0xc3]),
    ],
    &[
        Part::Is(&[0x53, 0x89, 0xfb, 0x48, 0x0f, 0xbe, 0xdb, 0x48, 0x8d, 0x3d]),
        Part::Long,
        Part::Is(&[0xe8]),
        Part::Any,
        Part::Is(&[0x0f, 0xb6, 0x84, 0x03]),
        Part::Long,
        Part::Is(&[0x5b, 0xc3]),
    ],
];

/// The byte of an object that this getter reads, if its code does nothing else.
///
/// # Safety
/// The code of a function.
pub unsafe fn member(code: *const u8, object: *const c_void) -> Option<*const u8> {
    // SAFETY: a function's code.
    let [offset, _] = MEMBER.iter().find_map(|parts| unsafe { operands(code, parts) })?;
    Some(object.cast::<u8>().wrapping_offset(offset.value))
}

/// The byte of a library's data that this getter reads, if its code does nothing else.
///
/// # Safety
/// The code of a function.
pub unsafe fn global(code: *const u8) -> Option<*const u8> {
    // SAFETY: a function's code.
    let [offset, _] = GLOBAL.iter().find_map(|parts| unsafe { operands(code, parts) })?;
    Some(std::ptr::with_exposed_provenance(offset.end.wrapping_add_signed(offset.value)))
}

/// A byte of each thread's.
#[derive(Clone, Copy)]
pub struct ThreadByte {
    /// Address of what names the thread's block of a library.
    block: usize,
    offset: isize,
    address_of: unsafe extern "C" fn(usize) -> *const u8,
}

impl ThreadByte {
    /// That which this getter reads, or the first of those if it takes a number. What its code calls is not looked at: the
    /// bytes are to be compared with what it gives.
    ///
    /// # Safety
    /// The code of a function.
    pub unsafe fn new(code: *const u8) -> Option<ThreadByte> {
        // SAFETY: a function's code, and the function of the dynamic loader that has this name and takes one address.
        unsafe {
            let [block, offset] = THREAD.iter().find_map(|parts| operands(code, parts))?;
            let address_of = libc::dlsym(libc::RTLD_DEFAULT, c"__tls_get_addr".as_ptr());
            if address_of.is_null() {
                return None;
            }
            Some(ThreadByte {
                block: block.end.wrapping_add_signed(block.value),
                offset: offset.value,
                address_of: std::mem::transmute::<*mut c_void, unsafe extern "C" fn(usize) -> *const u8>(address_of),
            })
        }
    }

    /// Where the calling thread's is.
    pub fn here(&self) -> *const u8 {
        // SAFETY: what the getter itself does.
        unsafe { (self.address_of)(self.block) }.wrapping_offset(self.offset)
    }
}

/// The operands of code that consists of these parts.
unsafe fn operands(code: *const u8, parts: &[Part]) -> Option<[Operand; 2]> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let (mut found, mut count, mut at) = ([Operand::default(); 2], 0, code);
    for part in parts {
        // SAFETY: what was equal so far goes on, as none of the parts but the last ends a function.
        unsafe {
            let value = match part {
                Part::Is(bytes) => {
                    if (0..bytes.len()).any(|i| *at.add(i) != bytes[i]) {
                        return None;
                    }
                    at = at.add(bytes.len());
                    continue;
                }
                Part::Any => {
                    at = at.add(4);
                    continue;
                }
                Part::Short => {
                    at = at.add(1);
                    at.sub(1).read().cast_signed() as isize
                }
                Part::Long => {
                    at = at.add(4);
                    at.sub(4).cast::<i32>().read_unaligned() as isize
                }
            };
            found[count] = Operand { value, end: at.expose_provenance() };
            count += 1;
        }
    }
    Some(found)
}
