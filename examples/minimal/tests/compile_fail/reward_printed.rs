//! A reward can't be printed, so it reaches no log and no message.

fn main() {
    let reward = bandana_client::Reward::new(0.25).unwrap();
    println!("{reward}");
}
