//! Only the privatizer makes private reports; a bit can't be turned into one.

use bandana_client::PrivateReport;

fn main() {
    let _constructed = PrivateReport(true.into());
    let _converted: PrivateReport = true.into();
    let _default = PrivateReport::default();
}
