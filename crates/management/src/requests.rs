//! Tables of requests.

/// Values, and the requests that have each of them: methods, separated by commas (`*` for all), and the path as the
/// router has it.
pub(super) type Requests<T> = [(T, &'static [&'static str])];

/// Returns the methods, the path and the value of each request.
pub(super) fn rows<T: Copy>(
    table: &Requests<T>,
) -> impl Iterator<Item = (&'static str, &'static str, T)> {
    table.iter().flat_map(|(value, requests)| {
        let requests = requests
            .iter()
            .filter_map(|request| request.split_once(' '));
        requests.map(|(methods, path)| (methods, path, *value))
    })
}

/// Returns the value of a request, if it has a row.
pub(super) fn find<T: Copy>(table: &Requests<T>, method: &str, path: &str) -> Option<T> {
    let is_for = |methods: &str| methods.split(',').any(|one| one == "*" || one == method);
    let row = rows(table).find(|(methods, of, _)| *of == path && is_for(methods));
    row.map(|(_, _, value)| value)
}
