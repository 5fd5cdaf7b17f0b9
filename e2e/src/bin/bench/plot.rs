//! Plots of a bench: lines over log axes, written as SVG.

use std::fmt::Write;
use std::fs;
use std::path::Path;

use anyhow::Result;

const WIDTH: f64 = 720.0;
const HEIGHT: f64 = 440.0;
/// Left, right, top, bottom.
const MARGIN: (f64, f64, f64, f64) = (80.0, 190.0, 50.0, 60.0);
/// Told apart by people who see colours differently (Okabe and Ito).
const COLOURS: [&str; 7] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#000000"];

/// One line.
#[derive(Clone, Debug)]
pub(crate) struct Series {
    pub(crate) name: String,
    pub(crate) points: Vec<(f64, f64)>,
    /// An aim, not a measurement.
    pub(crate) aim: bool,
}

impl Series {
    pub(crate) fn measured(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), points, aim: false }
    }

    pub(crate) fn aim(name: impl Into<String>, points: Vec<(f64, f64)>) -> Series {
        Series { name: name.into(), points, aim: true }
    }
}

/// A plot with both axes logarithmic.
#[derive(Clone, Debug)]
pub(crate) struct Plot {
    pub(crate) title: String,
    pub(crate) x: String,
    pub(crate) y: String,
    pub(crate) series: Vec<Series>,
}

/// The powers of ten around values.
fn decades(values: impl Iterator<Item = f64> + Clone) -> (i32, i32) {
    let least = values.clone().fold(f64::INFINITY, f64::min);
    let most = values.fold(0.0, f64::max);
    if !least.is_finite() || least <= 0.0 {
        return (0, 1);
    }
    #[allow(clippy::cast_possible_truncation, reason = "an exponent")]
    let (low, high) = (least.log10().floor() as i32, most.log10().ceil() as i32);
    (low, high.max(low + 1))
}

fn label(exponent: i32) -> String {
    match exponent {
        0..=6 => {
            let digits = format!("1{}", "0".repeat(usize::try_from(exponent).unwrap_or(0)));
            let mut text = String::new();
            for (index, digit) in digits.chars().enumerate() {
                if index > 0 && (digits.len() - index) % 3 == 0 {
                    text.push(',');
                }
                text.push(digit);
            }
            text
        }
        -3..0 => format!("{}", 10f64.powi(exponent)),
        _ => format!("1e{exponent}"),
    }
}

fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

impl Plot {
    /// The plot as SVG. Points that are not above zero have no place on log axes and are left out.
    pub(crate) fn svg(&self) -> String {
        let (left, right, top, bottom) = MARGIN;
        let shown = |series: &Series| -> Vec<(f64, f64)> {
            series.points.iter().copied().filter(|(x, y)| *x > 0.0 && *y > 0.0).collect()
        };
        let all: Vec<(f64, f64)> = self.series.iter().flat_map(shown).collect();
        let (x_low, x_high) = decades(all.iter().map(|(x, _)| *x));
        let (y_low, y_high) = decades(all.iter().map(|(_, y)| *y));
        let place = |value: f64, low: i32, high: i32, from: f64, to: f64| {
            from + (value.log10() - f64::from(low)) / f64::from(high - low) * (to - from)
        };
        let at_x = |x: f64| place(x, x_low, x_high, left, WIDTH - right);
        let at_y = |y: f64| place(y, y_low, y_high, HEIGHT - bottom, top);
        let mut out = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n<text x=\"{left}\" y=\"26\" font-size=\"15\" font-weight=\"bold\">{}</text>\n",
            escape(&self.title)
        );
        // Writing to a string does not fail.
        let mut line = |text: String| {
            let _ = writeln!(out, "{text}");
        };
        for exponent in x_low..=x_high {
            let x = at_x(10f64.powi(exponent));
            line(format!(
                "<line x1=\"{x:.1}\" y1=\"{top}\" x2=\"{x:.1}\" y2=\"{:.1}\" stroke=\"#dddddd\"/>",
                HEIGHT - bottom
            ));
            line(format!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
                HEIGHT - bottom + 18.0,
                label(exponent)
            ));
        }
        for exponent in y_low..=y_high {
            let y = at_y(10f64.powi(exponent));
            line(format!(
                "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\" stroke=\"#dddddd\"/>",
                WIDTH - right
            ));
            line(format!(
                "<text x=\"{:.1}\" y=\"{:.1}\" text-anchor=\"end\">{}</text>",
                left - 8.0,
                y + 4.0,
                label(exponent)
            ));
        }
        let middle = (left + WIDTH - right) / 2.0;
        line(format!(
            "<text x=\"{middle:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{}</text>",
            HEIGHT - 18.0,
            escape(&self.x)
        ));
        let middle = (top + HEIGHT - bottom) / 2.0;
        line(format!(
            "<text x=\"18\" y=\"{middle:.1}\" text-anchor=\"middle\" transform=\"rotate(-90 18 {middle:.1})\">{}</text>",
            escape(&self.y)
        ));
        for (index, series) in self.series.iter().enumerate() {
            let colour = COLOURS[index % COLOURS.len()];
            let dashes = if series.aim { " stroke-dasharray=\"6 4\"" } else { "" };
            let points: Vec<(f64, f64)> = shown(series).into_iter().map(|(x, y)| (at_x(x), at_y(y))).collect();
            let path: Vec<String> = points.iter().map(|(x, y)| format!("{x:.1},{y:.1}")).collect();
            line(format!(
                "<polyline fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"{dashes} points=\"{}\"/>",
                path.join(" ")
            ));
            if !series.aim {
                for (x, y) in &points {
                    line(format!("<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"3.5\" fill=\"{colour}\"/>"));
                }
            }
            #[allow(clippy::cast_precision_loss, reason = "a few lines of a legend")]
            let y = top + 10.0 + 20.0 * index as f64;
            let x = WIDTH - right + 16.0;
            line(format!(
                "<line x1=\"{x}\" y1=\"{y}\" x2=\"{}\" y2=\"{y}\" stroke=\"{colour}\" stroke-width=\"2\"{dashes}/>",
                x + 24.0
            ));
            line(format!("<text x=\"{}\" y=\"{}\">{}</text>", x + 30.0, y + 4.0, escape(&series.name)));
        }
        out.push_str("</svg>\n");
        out
    }

    /// Writes the plot into a folder under this name.
    ///
    /// # Errors
    /// When the file cannot be written.
    pub(crate) fn write(&self, folder: &Path, name: &str) -> Result<()> {
        fs::create_dir_all(folder)?;
        fs::write(folder.join(format!("{name}.svg")), self.svg())?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_lies_within_the_frame_and_text_is_escaped() {
        let plot = Plot {
            title: "a < b".to_owned(),
            x: "agents".to_owned(),
            y: "ms".to_owned(),
            series: vec![
                Series::measured("p50", vec![(1.0, 0.31), (5_000.0, 71.0), (10.0, 0.0)]),
                Series::aim("aim", vec![(1.0, 0.3), (5_000.0, 60.0)]),
            ],
        };
        let svg = plot.svg();
        assert!(svg.contains("a &lt; b"), "{svg}");
        assert!(svg.contains("10,000"), "the axis ends at the power of ten above the largest value");
        assert_eq!(svg.matches("<circle").count(), 2, "a point at zero is left out, and an aim has no dots");
        let numbers = svg.split("cx=\"").skip(1).map(|rest| rest.split('"').next().unwrap().parse::<f64>().unwrap());
        for x in numbers {
            assert!((MARGIN.0..=WIDTH - MARGIN.1).contains(&x), "{x} is outside of the frame");
        }
    }
}
