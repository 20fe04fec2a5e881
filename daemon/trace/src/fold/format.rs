//! `format(value, spec)` for text, ints and floats (`Python/formatter_unicode.c`).

use super::number::Number;
use super::{Fold, NotFolded, display, repr};
use flambeau_ir::code::Const;

/// A parsed format specification.
#[derive(Debug, Default)]
struct Spec {
    fill: Option<char>,
    align: Option<char>,
    sign: Option<char>,
    alternate: bool,
    zero: bool,
    width: usize,
    grouping: Option<char>,
    precision: Option<usize>,
    kind: Option<char>,
}

/// `format(value, spec)`
pub fn format(value: &Const, spec: &str) -> Fold<String> {
    if spec.is_empty() {
        return display(value);
    }
    let parsed = parse(spec).ok_or(NotFolded::Unhandled)?;
    match value {
        Const::Str(text) => string(text, &parsed),
        Const::Bool(_) if parsed.kind.is_none() => Err(NotFolded::Unhandled),
        Const::Bool(_) | Const::Int(_) => integer(value, &parsed),
        Const::Float(x) => float(*x, &parsed),
        _ => Err(NotFolded::Unhandled),
    }
}

fn parse(text: &str) -> Option<Spec> {
    let chars: Vec<char> = text.chars().collect();
    let mut spec = Spec::default();
    let mut at = 0;
    let is_align = |c: Option<&char>| c.is_some_and(|c| "<>=^".contains(*c));
    if is_align(chars.get(1)) {
        spec.fill = Some(chars[0]);
        spec.align = Some(chars[1]);
        at = 2;
    } else if is_align(chars.first()) {
        spec.align = Some(chars[0]);
        at = 1;
    }
    let take = |allowed: &str, at: &mut usize| {
        let found = chars.get(*at).copied().filter(|c| allowed.contains(*c));
        *at += usize::from(found.is_some());
        found
    };
    spec.sign = take("+- ", &mut at);
    spec.alternate = take("#", &mut at).is_some();
    spec.zero = take("0", &mut at).is_some();
    let number = |at: &mut usize| {
        let start = *at;
        while chars.get(*at).is_some_and(char::is_ascii_digit) {
            *at += 1;
        }
        (*at > start).then(|| chars[start..*at].iter().collect::<String>().parse::<usize>().unwrap_or(usize::MAX))
    };
    spec.width = number(&mut at).unwrap_or(0);
    if let Some(&c @ (',' | '_')) = chars.get(at) {
        spec.grouping = Some(c);
        at += 1;
    }
    if chars.get(at) == Some(&'.') {
        at += 1;
        spec.precision = Some(number(&mut at)?);
    }
    spec.kind = chars.get(at).copied();
    at += usize::from(spec.kind.is_some());
    (at == chars.len() && spec.width < 10_000 && spec.precision.unwrap_or(0) < 1000).then_some(spec)
}

fn string(text: &str, spec: &Spec) -> Fold<String> {
    let number_only = spec.sign.is_some() || spec.alternate || spec.grouping.is_some() || spec.align == Some('=');
    if number_only || !matches!(spec.kind, None | Some('s')) {
        return Err(NotFolded::Unhandled);
    }
    let text: String = text.chars().take(spec.precision.unwrap_or(usize::MAX)).collect();
    let fill = spec.fill.unwrap_or(if spec.zero { '0' } else { ' ' });
    Ok(pad(&text, spec.width, fill, spec.align.unwrap_or('<')))
}

fn pad(text: &str, width: usize, fill: char, align: char) -> String {
    let missing = width.saturating_sub(text.chars().count());
    let (left, right) = match align {
        '<' => (0, missing),
        '^' => (missing / 2, missing - missing / 2),
        _ => (missing, 0),
    };
    let side = |n| std::iter::repeat_n(fill, n).collect::<String>();
    format!("{}{text}{}", side(left), side(right))
}

/// Sign, prefix and digits set into the width. `digits` may have a fraction or exponent behind its first digits.
fn number(negative: bool, prefix: &str, digits: &str, spec: &Spec, group: usize) -> String {
    let sign = match (negative, spec.sign) {
        (true, _) => "-",
        (false, Some('+')) => "+",
        (false, Some(' ')) => " ",
        _ => "",
    };
    let fill = spec.fill.unwrap_or(if spec.zero { '0' } else { ' ' });
    let align = spec.align.unwrap_or(if spec.zero { '=' } else { '>' });
    let head = sign.len() + prefix.len();
    let mut digits = digits.to_owned();
    if let Some(separator) = spec.grouping {
        // Zeros that fill the width are grouped too.
        let least = if align == '=' && fill == '0' { spec.width.saturating_sub(head) } else { 0 };
        digits = grouped(&digits, separator, group, least);
    }
    if align == '=' {
        let inner = pad(&digits, spec.width.saturating_sub(head), fill, '>');
        return format!("{sign}{prefix}{inner}");
    }
    pad(&format!("{sign}{prefix}{digits}"), spec.width, fill, align)
}

fn grouped(digits: &str, separator: char, group: usize, least: usize) -> String {
    let whole = digits.find(|c: char| !c.is_ascii_hexdigit() || c == 'e').unwrap_or(digits.len());
    let (head, tail) = digits.split_at(whole);
    let mut head = head.to_owned();
    let length = |n: usize| n + n.saturating_sub(1) / group;
    while length(head.len()) + tail.len() < least {
        head.insert(0, '0');
    }
    let mut out = String::new();
    for (i, c) in head.chars().enumerate() {
        if i > 0 && (head.len() - i).is_multiple_of(group) {
            out.push(separator);
        }
        out.push(c);
    }
    out + tail
}

fn integer(value: &Const, spec: &Spec) -> Fold<String> {
    let Some(Number::Int(i)) = Number::of(value) else { return Err(NotFolded::Unhandled) };
    let kind = spec.kind.unwrap_or('d');
    if "eEfFgG%".contains(kind) {
        return float(i as f64, spec);
    }
    if spec.precision.is_some() || (spec.grouping == Some(',') && kind != 'd') {
        return Err(NotFolded::Unhandled);
    }
    let magnitude = i.unsigned_abs();
    let (prefix, digits, group) = match kind {
        'd' => ("", magnitude.to_string(), 3),
        'x' => ("0x", format!("{magnitude:x}"), 4),
        'X' => ("0X", format!("{magnitude:X}"), 4),
        'o' => ("0o", format!("{magnitude:o}"), 4),
        'b' => ("0b", format!("{magnitude:b}"), 4),
        _ => return Err(NotFolded::Unhandled),
    };
    Ok(number(i < 0, if spec.alternate { prefix } else { "" }, &digits, spec, group))
}

fn float(x: f64, spec: &Spec) -> Fold<String> {
    if spec.alternate || !x.is_finite() {
        return Err(NotFolded::Unhandled);
    }
    let (magnitude, precision) = (x.abs(), spec.precision);
    let digits = match spec.kind {
        None if precision.is_none() => repr(&Const::Float(magnitude))?,
        None => general(magnitude, precision.unwrap_or(6), true),
        Some('f' | 'F') => format!("{magnitude:.*}", precision.unwrap_or(6)),
        Some('%') => format!("{:.*}%", precision.unwrap_or(6), magnitude * 100.0),
        Some('e') => exponential(magnitude, precision.unwrap_or(6)),
        Some('E') => exponential(magnitude, precision.unwrap_or(6)).to_uppercase(),
        Some('g') => general(magnitude, precision.unwrap_or(6), false),
        Some('G') => general(magnitude, precision.unwrap_or(6), false).to_uppercase(),
        _ => return Err(NotFolded::Unhandled),
    };
    Ok(number(x.is_sign_negative(), "", &digits, spec, 3))
}

fn exponential(x: f64, precision: usize) -> String {
    super::repr::exponential(&format!("{x:.precision$e}"))
}

/// The `g` form; with `dot`, as a bare precision gives it: at least one digit behind the point.
fn general(x: f64, precision: usize, dot: bool) -> String {
    let precision = precision.max(1);
    let scientific = format!("{x:.*e}", precision - 1);
    let exponent: i32 = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    let largest = precision as i32 - i32::from(dot);
    if exponent < -4 || exponent >= largest {
        let (mantissa, exponent) = scientific.split_once('e').unwrap_or((&scientific, "0"));
        return super::repr::exponential(&format!("{}e{exponent}", trimmed(mantissa)));
    }
    let fixed = format!("{x:.*}", (precision as i32 - 1 - exponent).max(0) as usize);
    let text = trimmed(&fixed);
    if dot && !text.contains('.') { format!("{text}.0") } else { text.to_owned() }
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { text }
}
