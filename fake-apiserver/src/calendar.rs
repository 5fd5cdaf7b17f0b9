//! Times as the API writes them, from milliseconds since 1970.

/// `2026-11-30T15:04:05Z`.
pub(crate) fn rfc3339(milliseconds: u64) -> String {
    let seconds = milliseconds / 1000;
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let (year, month, day) = date(days);
    let (hour, minute, second) = (second / 3600, second / 60 % 60, second % 60);
    format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
}

/// Year, month and day from days since 1970. Years are counted from March, so that the leap day is the last of its year.
fn date(days: u64) -> (u64, u64, u64) {
    // Days since 0000-03-01; an era is 400 years and has 146,097 days.
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day_of_month = day - (153 * month + 2) / 5 + 1;
    let (month, carry) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    (era * 400 + year + carry, month, day_of_month)
}

#[cfg(test)]
mod tests {
    use super::rfc3339;

    #[test]
    fn days_around_leap_years_and_ends_of_months_are_right() {
        for (seconds, text) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (951_868_800, "2000-03-01T00:00:00Z"),
            (1_709_164_800, "2024-02-29T00:00:00Z"),
            (1_735_689_599, "2024-12-31T23:59:59Z"),
            (4_107_542_400, "2100-03-01T00:00:00Z"),
        ] {
            assert_eq!(rfc3339(seconds * 1000 + 999), text);
        }
    }
}
