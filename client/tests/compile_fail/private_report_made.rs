//! Private reports come from the privatizer, not from whoever has a bit.

use bandana_client::PrivateReport;

fn main() {
    let _constructed = PrivateReport(true.into());
    let _converted: PrivateReport = true.into();
    let _default = PrivateReport::default();
}
