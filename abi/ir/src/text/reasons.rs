//! The page `docs/breaks.md`: every reason a graph breaks for, from the enum of reasons.

use crate::reason::{Example, ReasonCode};
use std::fmt::Write;

const INTRODUCTION: &str = "# Why graphs break

<!-- Written by `cargo xtask docs` from `abi/ir/src/reason.rs`; edit it there. -->

Where flambeau meets something it cannot put into a graph, the graph ends, the unsupported instruction runs as plain Python, and
a new graph begins behind it. Results are those of eager code; what is lost is speed. Each such place has a *reason* with a code
that stays the same from version to version. The same code is the key in `flambeau.counters()[\"graph_breaks\"]`, stands in the
lines of `FLAMBEAU_LOGS=breaks`, in the report of `flambeau explain`, and in the exception that `fullgraph=True` and
`flambeau.error_on_graph_break` raise, each time with the user's stack through every inlined function.

Each example defines a function `f` of one tensor that meets the reason; a test runs them all.
";

/// The page as Markdown.
pub fn reasons_page() -> String {
    let mut page = INTRODUCTION.to_owned();
    page.push_str("\n| code | meaning |\n|---|---|\n");
    // Writing to a string does not fail.
    for code in ReasonCode::ALL {
        let _ = writeln!(page, "| [`{0}`](#{0}) | {1} |", code.name(), code.explanation());
    }
    for code in ReasonCode::ALL {
        let _ = write!(page, "\n## `{}`\n\n{}\n\n", code.name(), code.explanation());
        let _ = match code.example() {
            Example::Code(code) => write!(page, "```python\n{code}\n```\n"),
            Example::Words(text) => writeln!(page, "Example: {text}"),
        };
        let _ = write!(page, "\n**What to do:** {}\n", code.hint());
    }
    page
}

#[cfg(test)]
mod tests {
    use crate::reason::ReasonCode;
    use std::collections::BTreeSet;

    #[test]
    fn every_reason_has_a_code_of_its_own_and_says_what_to_do() {
        let names: BTreeSet<_> = ReasonCode::ALL.iter().map(|c| c.name()).collect();
        assert_eq!(names.len(), ReasonCode::ALL.len());
        for code in ReasonCode::ALL {
            assert!(code.name().bytes().all(|b| b.is_ascii_lowercase() || b == b'_'), "{}", code.name());
            for sentence in [code.explanation(), code.hint()] {
                assert!(sentence.ends_with('.') && sentence.len() > 10, "{}: {sentence}", code.name());
            }
        }
    }
}
