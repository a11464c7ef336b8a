//! What a bench measured, and the limit that it is held to.

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;

/// Something that was measured.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// What it may be; infinite on the side that does not matter.
    pub(crate) limit: RangeInclusive<f64>,
}

impl Figure {
    fn is_met(&self) -> bool {
        self.limit.contains(&self.value)
    }
}

impl fmt::Display for Figure {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { name, value, unit, limit } = self;
        let (sign, bound) =
            if limit.end().is_finite() { ('≤', limit.end()) } else { ('≥', limit.start()) };
        let verdict = if self.is_met() { "met" } else { "MISSED" };
        write!(formatter, "  {name:<24} {value:>9.2} {unit:<4}  limit {sign} {bound} {unit:<4}  {verdict}")
    }
}

/// Prints the figures; with `--check` among the arguments a missed limit is an error.
pub(crate) fn report(title: &str, figures: &[Figure], arguments: &[String]) -> Result<(), Box<dyn Error>> {
    println!("{title}");
    for figure in figures {
        println!("{figure}");
    }
    let missed: Vec<&str> =
        figures.iter().filter(|figure| !figure.is_met()).map(|figure| figure.name).collect();
    if missed.is_empty() || !arguments.iter().any(|argument| argument == "--check") {
        return Ok(());
    }
    Err(format!("missed: {}", missed.join(", ")).into())
}

/// The number behind a name among the arguments.
pub(crate) fn number(arguments: &[String], name: &str, default: usize) -> Result<usize, Box<dyn Error>> {
    let mut rest = arguments.iter().skip_while(|argument| *argument != name);
    match (rest.next(), rest.next()) {
        (None, _) => Ok(default),
        (Some(_), Some(given)) => {
            given.parse().map_err(|_| format!("{name} needs a number, not {given}").into())
        }
        (Some(_), None) => Err(format!("{name} needs a number").into()),
    }
}
