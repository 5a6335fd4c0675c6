//! What the model is made of.

use super::exhibit::Standing;

/// A constant of the model.
#[derive(Clone, Debug, PartialEq)]
pub struct Constant {
    /// What it is.
    pub name: &'static str,
    /// How much.
    pub value: f64,
    /// Of what.
    pub unit: &'static str,
    /// The words of the paper that it comes from, or what it was fitted to.
    pub source: &'static str,
    /// Given by the paper, or calibrated.
    pub standing: Standing,
}

impl Constant {
    /// One that the paper states.
    #[must_use]
    pub const fn given(
        name: &'static str,
        value: f64,
        unit: &'static str,
        source: &'static str,
    ) -> Self {
        Self { name, value, unit, source, standing: Standing::Given }
    }

    /// One that was fitted.
    #[must_use]
    pub const fn calibrated(
        name: &'static str,
        value: f64,
        unit: &'static str,
        source: &'static str,
    ) -> Self {
        Self { name, value, unit, source, standing: Standing::Calibrated }
    }
}
