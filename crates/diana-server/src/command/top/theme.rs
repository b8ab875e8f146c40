//! Colours, or none: with `NO_COLOR`, everything is still distinguished by words, bold and reversed text.

use ratatui::style::{Color, Modifier, Style};

/// The styles of the view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Theme {
    Color,
    NoColor,
}

impl Theme {
    /// Returns the theme for the environment: a non-empty `NO_COLOR` and a `dumb` terminal have no colours.
    pub(super) fn from_environment() -> Self {
        let is_set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
        let has_color = is_set("NO_COLOR").is_none() && is_set("TERM").is_none_or(|term| term != "dumb");
        if has_color { Self::Color } else { Self::NoColor }
    }

    fn color(self, color: Color) -> Style {
        match self {
            Self::Color => Style::new().fg(color),
            Self::NoColor => Style::new(),
        }
    }

    pub(super) fn allowed(self) -> Style {
        self.color(Color::Green)
    }

    pub(super) fn denied(self) -> Style {
        self.color(Color::Red)
    }

    pub(super) fn delayed(self) -> Style {
        self.color(Color::Yellow)
    }

    pub(super) fn heading(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD)
    }

    pub(super) fn dim(self) -> Style {
        Style::new().add_modifier(Modifier::DIM)
    }

    /// Returns the style of the chosen row of the list that has the focus.
    pub(super) fn chosen(self) -> Style {
        Style::new().add_modifier(Modifier::REVERSED)
    }

    /// Returns the style of the chosen row of another list.
    pub(super) fn chosen_elsewhere(self) -> Style {
        Style::new().add_modifier(Modifier::BOLD | Modifier::UNDERLINED)
    }

    /// Returns the style of a failure.
    pub(super) fn alarm(self) -> Style {
        let style = Style::new().add_modifier(Modifier::BOLD);
        match self {
            Self::Color => style.fg(Color::White).bg(Color::Red),
            Self::NoColor => style.add_modifier(Modifier::REVERSED),
        }
    }
}
