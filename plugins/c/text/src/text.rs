//! Lines, blocks and names.

use flambeau_plugin::kernel::ValueId;

/// A program on its way.
#[derive(Default)]
pub struct Text {
    /// All of it so far.
    pub text: String,
    depth: usize,
}

impl Text {
    /// One line, indented as the blocks that are open ask.
    pub fn line(&mut self, line: &str) {
        let indent = if line.starts_with('#') { 0 } else { self.depth * 4 };
        self.text.extend(std::iter::repeat_n(' ', indent));
        self.text.push_str(line);
        self.text.push('\n');
    }

    /// Begins a block; nothing but a brace where `line` is empty.
    pub fn open(&mut self, line: &str) {
        self.line(&if line.is_empty() { "{".to_owned() } else { format!("{line} {{") });
        self.depth += 1;
    }

    /// Ends the block begun last.
    pub fn close(&mut self) {
        self.depth -= 1;
        self.line("}");
    }
}

/// The variable of a value.
pub fn name(id: ValueId) -> String {
    format!("v{}", id.0)
}
