//! Private bits come from the privatizer, not from whoever has a bit.

use bandana_client::PrivateBit;

fn main() {
    let _constructed = PrivateBit(true);
    let _converted: PrivateBit = true.into();
    let _default = PrivateBit::default();
}
