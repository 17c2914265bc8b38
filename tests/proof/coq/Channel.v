(** From what the solver proves of the compiled channels to the privacy of one report.

    Each premise of [bit_is_private] and of [kary_is_private] is a theorem of tests/proof/theorems.py, and
    is marked with its name. *)

From Coq Require Import ZArith Reals List Bool Lia Lra.
Import ListNotations.
Open Scope Z_scope.

(** ** Counting words *)

(** The sum of [f 0], ..., [f (n - 1)]. *)
Fixpoint sum (f : Z -> Z) (n : nat) : Z :=
  match n with
  | O => 0
  | S m => sum f m + f (Z.of_nat m)
  end.

(** How many of the numbers from 0 to n - 1 pass a test. *)
Definition count (test : Z -> bool) (n : nat) : Z := sum (fun u => if test u then 1 else 0) n.

(** The number of words of 64 bits. *)
Definition words : Z := 2 ^ 64.

Definition is_word (u : Z) : Prop := 0 <= u < words.

(** How many pairs of words pass a test. *)
Definition pairs (test : Z -> Z -> bool) : Z :=
  sum (fun first => count (test first) (Z.to_nat words)) (Z.to_nat words).

(** The probability that two random words pass a test. This is what "the words are random" means here: all
    of the 2^128 pairs are equally likely. *)
Definition probability (test : Z -> Z -> bool) : R := IZR (pairs test) / IZR (words * words).

Lemma sum_ext f g n :
  (forall u, 0 <= u < Z.of_nat n -> f u = g u) -> sum f n = sum g n.
Proof.
  induction n as [|n IH]; simpl; intros H; [reflexivity|].
  rewrite IH, H; try lia. intros; apply H; lia.
Qed.

Lemma sum_between f n low high :
  (forall u, 0 <= u < Z.of_nat n -> low <= f u <= high) ->
  low * Z.of_nat n <= sum f n <= high * Z.of_nat n.
Proof.
  induction n as [|n IH]; [simpl; lia|]. intros H.
  change (sum f (S n)) with (sum f n + f (Z.of_nat n)).
  assert (low <= f (Z.of_nat n) <= high) by (apply H; lia).
  assert (low * Z.of_nat n <= sum f n <= high * Z.of_nat n) by (apply IH; intros; apply H; lia).
  lia.
Qed.

Lemma sum_plus f g n : sum (fun u => f u + g u) n = sum f n + sum g n.
Proof. induction n; simpl; lia. Qed.

(** Two words are one number of 128 bits. *)
Lemma sum_of_sums f m n :
  sum (fun first => sum (fun second => f (first * Z.of_nat n + second)) n) m = sum f (m * n).
Proof.
  assert (split : forall a b, sum f (a + b) = sum f a + sum (fun v => f (Z.of_nat a + v)) b).
  { intros a b. induction b as [|b IH].
    - rewrite Nat.add_0_r. simpl. lia.
    - rewrite Nat.add_succ_r. simpl. rewrite IH, Nat2Z.inj_add. lia. }
  induction m as [|m IH]; simpl; [reflexivity|].
  rewrite IH, Nat.add_comm, split, Nat2Z.inj_mul. reflexivity.
Qed.

(** The numbers from a to b - 1 are b - a. *)
Lemma count_interval test n a b :
  0 <= a <= b -> b <= Z.of_nat n ->
  (forall u, 0 <= u < Z.of_nat n -> test u = true <-> a <= u < b) -> count test n = b - a.
Proof.
  intros Hab Hb H. unfold count.
  assert (H' : forall m, (m <= n)%nat ->
    sum (fun u => if test u then 1 else 0) m = Z.min b (Z.of_nat m) - Z.min a (Z.of_nat m)).
  { induction m as [|m IH]; intros Hm; [simpl; lia|].
    change (sum ?f (S m)) with (sum f m + f (Z.of_nat m)). rewrite IH by lia.
    specialize (H (Z.of_nat m)). destruct (test (Z.of_nat m)); lia. }
  rewrite H' by lia. lia.
Qed.

Lemma words_nat : Z.of_nat (Z.to_nat words) = words.
Proof. apply Z2Nat.id. unfold words. lia. Qed.

Lemma words_positive : 0 < words.
Proof. unfold words. lia. Qed.

#[global] Opaque words.

Lemma sum_of_words f low high :
  (forall u, is_word u -> low <= f u <= high) ->
  low * words <= sum f (Z.to_nat words) <= high * words.
Proof.
  intros H. pose proof (sum_between f (Z.to_nat words) low high) as between.
  rewrite words_nat in between. exact (between H).
Qed.

Lemma pairs_between test low high :
  (forall u, is_word u -> low <= count (test u) (Z.to_nat words) <= high) ->
  low * words <= pairs test <= high * words.
Proof. apply sum_of_words. Qed.

Lemma pairs_within (test : Z -> Z -> bool) low high :
  (forall u v, is_word u -> is_word v -> low <= (if test u v then 1 else 0) <= high) ->
  low * words * words <= pairs test <= high * words * words.
Proof. intros H. apply pairs_between. intros u Hu. apply sum_of_words. auto. Qed.

Lemma pairs_constant (test : Z -> Z -> bool) value :
  (forall u v, is_word u -> is_word v -> (if test u v then 1 else 0) = value) ->
  pairs test = value * (words * words).
Proof.
  intros H. rewrite Z.mul_assoc.
  destruct (pairs_within test value value) as [low high].
  - intros u v Hu Hv. rewrite H; trivial. lia.
  - exact (Z.le_antisymm _ _ high low).
Qed.

Lemma pairs_plus (test one other : Z -> Z -> bool) :
  (forall u v, is_word u -> is_word v ->
    (if test u v then 1 else 0) = (if one u v then 1 else 0) + (if other u v then 1 else 0)) ->
  pairs test = pairs one + pairs other.
Proof.
  intros H. unfold pairs, count. rewrite <- sum_plus. apply sum_ext. intros u Hu.
  rewrite <- sum_plus. apply sum_ext. intros v Hv. rewrite words_nat in *. apply H; assumption.
Qed.

Lemma sum_of_counts (test : Z -> bool) n a b :
  0 <= a <= b -> b <= Z.of_nat n * Z.of_nat n ->
  (forall u, 0 <= u < Z.of_nat n * Z.of_nat n -> test u = true <-> a <= u < b) ->
  sum (fun u => count (fun v => test (u * Z.of_nat n + v)) n) n = b - a.
Proof.
  intros Hab Hb H. unfold count. rewrite (sum_of_sums (fun u => if test u then 1 else 0)).
  rewrite <- Nat2Z.inj_mul in *. apply count_interval; assumption.
Qed.

(** Of the numbers of 128 bits, b - a are those from a to b - 1. *)
Lemma pairs_interval (test : Z -> Z -> bool) a b :
  0 <= a <= b -> b <= words * words ->
  (forall u v, is_word u -> is_word v -> test u v = true <-> a <= u * words + v < b) ->
  pairs test = b - a.
Proof.
  intros Hab Hb H.
  pose proof (sum_of_counts (fun n => (a <=? n) && (n <? b)) (Z.to_nat words) a b Hab) as numbers.
  rewrite words_nat in numbers. rewrite <- numbers; [|assumption|].
  - unfold pairs, count. apply sum_ext. intros u Hu. apply sum_ext. intros v Hv. rewrite words_nat in *.
    specialize (H u v Hu Hv).
    destruct (test u v), (Z.leb_spec a (u * words + v)), (Z.ltb_spec (u * words + v) b); simpl; lia.
  - intros n _. destruct (Z.leb_spec a n), (Z.ltb_spec n b); simpl; lia.
Qed.

#[global] Opaque pairs.

(** ** What privacy is *)

Section Reports.

(** What a user does. Nothing is assumed about it. *)
Context {Reward : Type}.

(** A report: the symbol that leaves, by the reward and two random words. *)
Definition Report : Type := Reward -> Z -> Z -> Z.

(** The probability that a symbol leaves. *)
Definition law (report : Report) (r : Reward) (symbol : Z) : R :=
  probability (fun u v => report r u v =? symbol).

(** ε-local differential privacy: no symbol is more than e^ε times as likely for one reward as for another
    one. *)
Definition is_private (ε : R) (report : Report) : Prop :=
  forall r r' symbol, (law report r symbol <= exp ε * law report r' symbol)%R.

Lemma law_nonnegative report r symbol : (0 <= law report r symbol)%R.
Proof.
  assert (0 * words * words <= pairs (fun u v => report r u v =? symbol) <= 1 * words * words).
  { apply pairs_within. intros u v _ _. destruct (report r u v =? symbol); lia. }
  pose proof words_positive. unfold law, probability. apply Rmult_le_pos; [apply IZR_le; lia|].
  left. apply Rinv_0_lt_compat, IZR_lt. lia.
Qed.

(** The symbols from 0 to k - 1. *)
Definition symbols (k : nat) : list Z := map Z.of_nat (seq 0 k).

Definition real_sum {A} (f : A -> R) (all : list A) : R := fold_right (fun a s => f a + s)%R 0%R all.

(** All symbols together have the probability 1. *)
Lemma law_total (report : Report) k r :
  (forall u v, is_word u -> is_word v -> 0 <= report r u v < Z.of_nat k) ->
  real_sum (law report r) (symbols k) = 1%R.
Proof.
  intros H.
  assert (below : forall n, real_sum (law report r) (symbols n) =
    probability (fun u v => (0 <=? report r u v) && (report r u v <? Z.of_nat n))).
  { induction n as [|n IH].
    - assert (none : pairs (fun u v => (0 <=? report r u v) && (report r u v <? Z.of_nat 0)) = 0).
      { apply (pairs_constant _ 0). intros u v _ _.
        destruct (Z.leb_spec 0 (report r u v)), (Z.ltb_spec (report r u v) (Z.of_nat 0)); simpl; lia. }
      unfold probability. rewrite none. unfold Rdiv. simpl. lra.
    - unfold symbols, real_sum in *. rewrite seq_S, map_app, fold_right_app. simpl.
      assert (shift : forall l a, (fold_right (fun s t => law report r s + t) a l =
        fold_right (fun s t => law report r s + t) 0 l + a)%R).
      { induction l; simpl; intros; [lra|]. rewrite IHl. lra. }
      rewrite shift, IH. unfold law at 1, probability, Rdiv.
      rewrite Rplus_0_r, <- Rmult_plus_distr_r, <- plus_IZR. apply f_equal2; [|reflexivity]. apply f_equal.
      symmetry. apply pairs_plus. intros u v _ _.
      destruct (Z.leb_spec 0 (report r u v)), (Z.ltb_spec (report r u v) (Z.of_nat n)),
        (Z.ltb_spec (report r u v) (Z.pos (Pos.of_succ_nat n))),
        (Z.eqb_spec (report r u v) (Z.of_nat n)); simpl; lia. }
  rewrite below. unfold probability.
  assert (all : pairs (fun u v => (0 <=? report r u v) && (report r u v <? Z.of_nat k)) = 1 * (words * words)).
  { apply pairs_constant. intros u v Hu Hv. specialize (H u v Hu Hv).
    destruct (Z.leb_spec 0 (report r u v)), (Z.ltb_spec (report r u v) (Z.of_nat k)); simpl; lia. }
  rewrite all, Z.mul_1_l. pose proof words_positive. apply Rinv_r, not_0_IZR. lia.
Qed.

(** ** What [verify] has accepted *)

(** A floor t for k symbols. "verify: accepts only 1 <= t and k t < 2^64, unchanged" *)
Definition is_floor (k t : Z) : Prop := 1 <= t /\ k * t < words.

(** "verify: accepts if and only if (2^64 - k t)/t is at most the bound". The bound x is at most e^ε - 1. *)
Definition is_accepted (k t : Z) (ε : R) : Prop :=
  exists x, (IZR (words - k * t) <= IZR t * x)%R /\ (x <= exp ε - 1)%R.

(** If each symbol has from t 2^64 to (2^64 - (k-1) t) 2^64 of the pairs, whatever the reward, then a floor
    that [verify] has accepted makes the report private. *)
Lemma private_by_floor (report : Report) k t ε symbol r r' :
  is_floor k t -> is_accepted k t ε ->
  t * words <= pairs (fun u v => report r' u v =? symbol) ->
  pairs (fun u v => report r u v =? symbol) <= (words - (k - 1) * t) * words ->
  (law report r symbol <= exp ε * law report r' symbol)%R.
Proof.
  intros [Ht _] [x [accepted bound]] low high. pose proof words_positive.
  unfold law, probability, Rdiv. rewrite <- Rmult_assoc. apply Rmult_le_compat_r.
  { left. apply Rinv_0_lt_compat, IZR_lt. lia. }
  apply IZR_le in low, high, Ht. rewrite !mult_IZR in *. rewrite !minus_IZR, !mult_IZR in *.
  assert (0 < IZR words)%R by (apply IZR_lt; lia).
  pose proof (exp_pos ε). rewrite minus_IZR in *.
  assert (IZR t * x <= IZR t * (exp ε - 1))%R by (apply Rmult_le_compat_l; lra).
  apply Rle_trans with (exp ε * (IZR t * IZR words))%R; [|apply Rmult_le_compat_l; lra].
  apply Rle_trans with (1 := high).
  replace (exp ε * (IZR t * IZR words))%R with (exp ε * IZR t * IZR words)%R by ring.
  apply Rmult_le_compat_r; lra.
Qed.

(** ** One bit *)

Theorem bit_is_private (bit : Reward -> Z -> Z -> bool) (threshold : Reward -> Z) t ε :
  is_floor 2 t ->
  is_accepted 2 t ε ->
  (* "threshold: between the floor and its complement, whatever the level" *)
  (forall r, t * words <= threshold r <= words * words - t * words) ->
  (* "report: 1 if and only if u < T" *)
  (forall r u v, is_word u -> is_word v -> bit r u v = true <-> u * words + v < threshold r) ->
  is_private ε (fun r u v => Z.b2z (bit r u v)).
Proof.
  intros floor accepted within below r r' symbol. pose proof words_positive.
  pose proof floor as [Ht _]. assert (0 <= t * words) by lia.
  (* A test of the bit that passes if the number is from a to b - 1. *)
  assert (exact : forall test q a b, 0 <= a <= b -> b <= words * words ->
    (forall n, 0 <= n < words * words -> test (n <? threshold q) = true <-> a <= n < b) ->
    pairs (fun u v => test (bit q u v)) = b - a).
  { intros test q a b Hab Hb H'. apply pairs_interval; trivial. intros u v Hu Hv.
    replace (bit q u v) with (u * words + v <? threshold q).
    - apply H'. unfold is_word in *. nia.
    - apply eq_true_iff_eq. rewrite Z.ltb_lt. symmetry. apply below; trivial. }
  pose proof (within r). pose proof (within r').
  destruct (Z.eq_dec symbol 1) as [->|]; [|destruct (Z.eq_dec symbol 0) as [->|]].
  - assert (ones : forall q, 0 <= threshold q <= words * words ->
      pairs (fun u v => Z.b2z (bit q u v) =? 1) = threshold q - 0).
    { intros q Hq. apply (exact (fun b => Z.b2z b =? 1)); try lia.
      intros m Hm. destruct (Z.ltb_spec m (threshold q)); simpl; lia. }
    apply private_by_floor with 2 t; [exact floor|exact accepted| |]; cbv beta; rewrite ones; lia.
  - assert (zeros : forall q, 0 <= threshold q <= words * words ->
      pairs (fun u v => Z.b2z (bit q u v) =? 0) = words * words - threshold q).
    { intros q Hq. apply (exact (fun b => Z.b2z b =? 0)); try lia.
      intros m Hm. destruct (Z.ltb_spec m (threshold q)); simpl; lia. }
    apply private_by_floor with 2 t; [exact floor|exact accepted| |]; cbv beta; rewrite zeros; lia.
  - assert (none : forall q, pairs (fun u v => Z.b2z (bit q u v) =? symbol) = 0 - 0).
    { intros q. apply (exact (fun b => Z.b2z b =? symbol)); try lia.
      intros m _. rewrite Z.eqb_eq. destruct (m <? threshold q); simpl; lia. }
    unfold law, probability. rewrite !none. simpl. unfold Rdiv. rewrite !Rmult_0_l, Rmult_0_r. apply Rle_refl.
Qed.

(** ** One of k symbols *)

Theorem kary_is_private (nearby : Reward -> Z -> Z) (answer : Z -> Z -> Z) k t ε :
  is_floor k t ->
  is_accepted k t ε ->
  (* "nearby: one of the k levels" *)
  (forall r u, is_word u -> 0 <= nearby r u < k) ->
  (* "answer: t words for each other symbol, the rest for the true one" *)
  (forall truth n v, 0 <= truth < k -> 0 <= n < k - 1 -> is_word v -> n * t <= v < (n + 1) * t ->
    answer truth v = if truth <=? n then n + 1 else n) ->
  (forall truth v, 0 <= truth < k -> is_word v -> (k - 1) * t <= v -> answer truth v = truth) ->
  is_private ε (fun r u v => answer (nearby r u) v).
Proof.
  intros floor accepted level other rest r r' symbol. pose proof words_positive. pose proof floor as [Ht Hkt].
  (* The number of the words that lead from a true symbol to the symbol. *)
  assert (exact : forall truth, 0 <= truth < k ->
    count (fun v => answer truth v =? symbol) (Z.to_nat words) =
    if (symbol <? 0) || (k <=? symbol) then 0
    else if symbol =? truth then words - (k - 1) * t else t).
  { intros truth Htruth.
    (* Each word below (k-1) t has a number, v div t. *)
    assert (value : forall v, is_word v -> answer truth v =
      if (k - 1) * t <=? v then truth else if truth <=? v / t then v / t + 1 else v / t).
    { intros v Hv. destruct (Z.leb_spec ((k - 1) * t) v) as [|small]; [apply rest; trivial|].
      unfold is_word in Hv. pose proof (Z.mul_div_le v t). pose proof (Z.mul_succ_div_gt v t).
      assert (0 <= v / t) by (apply Z.div_pos; lia).
      apply other; trivial; [|lia]. split; [trivial|]. apply Z.div_lt_upper_bound; lia. }
    assert (division : forall v n, t * n <= v < t * (n + 1) <-> v / t = n).
    { intros v n. split; [intros; symmetry; apply Z.div_unique with (v - t * n); lia|].
      intros <-. pose proof (Z.mul_div_le v t). pose proof (Z.mul_succ_div_gt v t). lia. }
    assert (interval : forall a b, 0 <= a <= b -> b <= words ->
      (forall v, is_word v -> answer truth v = symbol <-> a <= v < b) ->
      count (fun v => answer truth v =? symbol) (Z.to_nat words) = b - a).
    { intros a b Hab Hb H'. apply count_interval; rewrite ?words_nat; trivial.
      intros v Hv. rewrite Z.eqb_eq. apply H', Hv. }
    assert (0 <= (k - 1) * t <= words) by nia.
    destruct (Z.ltb_spec symbol 0), (Z.leb_spec k symbol); simpl; try lia.
    1,2: replace 0 with (0 - 0) by lia; apply interval; try lia; intros v Hv; rewrite value by trivial;
      destruct (Z.leb_spec ((k - 1) * t) v); [lia|]; unfold is_word in Hv;
      assert (0 <= v / t < k - 1) by (split; [apply Z.div_pos|apply Z.div_lt_upper_bound]; lia);
      destruct (Z.leb_spec truth (v / t)); lia.
    destruct (Z.eqb_spec symbol truth) as [->|differs].
    - apply interval; try lia. intros v Hv. rewrite value by trivial. unfold is_word in Hv.
      destruct (Z.leb_spec ((k - 1) * t) v); [lia|]. destruct (Z.leb_spec truth (v / t)); lia.
    - pose (n := if symbol <? truth then symbol else symbol - 1).
      assert (Hn : 0 <= n < k - 1) by (unfold n; destruct (Z.ltb_spec symbol truth); lia).
      rewrite (interval (t * n) (t * (n + 1))); [lia|nia|nia|]. intros v Hv.
      rewrite value by trivial. rewrite division. unfold is_word in Hv.
      destruct (Z.leb_spec ((k - 1) * t) v) as [large|small].
      + assert (k - 1 <= v / t) by (apply Z.div_le_lower_bound; lia). lia.
      + unfold n. destruct (Z.ltb_spec symbol truth), (Z.leb_spec truth (v / t)); lia. }
  assert (Hk : forall q, 0 <= nearby q 0 < k) by (intros; apply level; unfold is_word; lia).
  specialize (Hk r).
  assert (t <= words - (k - 1) * t) by lia.
  assert (range : forall q, if (symbol <? 0) || (k <=? symbol)
    then pairs (fun u v => answer (nearby q u) v =? symbol) = 0
    else t * words <= pairs (fun u v => answer (nearby q u) v =? symbol) <= (words - (k - 1) * t) * words).
  { intros q. destruct ((symbol <? 0) || (k <=? symbol)) eqn:outside.
    - assert (0 * words <= pairs (fun u v => answer (nearby q u) v =? symbol) <= 0 * words); [|lia].
      apply pairs_between. intros u Hu. rewrite (exact _ (level q u Hu)). lia.
    - apply pairs_between. intros u Hu. rewrite (exact _ (level q u Hu)).
      destruct (symbol =? nearby q u); lia. }
  destruct ((symbol <? 0) || (k <=? symbol)).
  - unfold law, probability. rewrite !range. unfold Rdiv. rewrite Rmult_0_l, Rmult_0_r. apply Rle_refl.
  - destruct (range r) as [_ high]. destruct (range r') as [low _].
    exact (private_by_floor _ k t ε symbol r r' floor accepted low high).
Qed.

End Reports.
