//! Measured values of a benchmark and their limits.

use std::error::Error;
use std::fmt;
use std::ops::RangeInclusive;

/// A measured value.
pub(crate) struct Figure {
    pub(crate) name: &'static str,
    pub(crate) value: f64,
    pub(crate) unit: &'static str,
    /// Allowed range; infinite on the side without a limit.
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

/// Prints the figures. With `--check` in the arguments, an exceeded limit is an error.
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

/// Parses the number that follows `name` in the arguments.
pub(crate) fn number(arguments: &[String], name: &str, default: usize) -> Result<usize, Box<dyn Error>> {
    let mut rest = arguments.iter().skip_while(|argument| *argument != name);
    match (rest.next(), rest.next()) {
        (None, _) => Ok(default),
        (Some(_), Some(given)) => {
            given.parse().map_err(|_| format!("{name} requires a number, not {given}").into())
        }
        (Some(_), None) => Err(format!("{name} requires a number").into()),
    }
}
