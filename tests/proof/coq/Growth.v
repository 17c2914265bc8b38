(** The check by which a device accepts a floor, in integers: shared/src/channel/growth.rs and share.rs.

    The definitions say what the solver proves of the compiled functions: each is marked with its theorem of
    tests/proof/theorems.py. What is proved here is that their bound is at most e^ε - 1. *)

From Coq Require Import ZArith Reals Bool Lia Lra.
From Bandana Require Import Channel.
Open Scope Z_scope.

(** "step: 2^64 + floor(ε s/(2^58 n)) for s modulo 2^122, exactly" *)
Definition step (rounded s n : Z) : Z := 2 ^ 64 + rounded * (s mod 2 ^ 122) / (2 ^ 58 * n).

(** "growth: from 1 on, each step is of the one before it, by 100, 99, ..., 2" *)
Fixpoint series (rounded : Z) (steps : nat) : Z :=
  match steps with
  | O => 2 ^ 64
  | S k => step rounded (series rounded k) (100 - Z.of_nat k)
  end.

(** ε is digits 2^-scale. "growth: ε rounded down to units of 2^-58" *)
Definition rounded (digits scale : Z) : Z := digits * 2 ^ 58 / 2 ^ scale.

(** The bound of e^ε - 1: a mantissa, and the number of its binary places.
    "growth: ε times the leading 64 bits of the sum, rounded down" *)
Definition growth (digits scale : Z) : Z * Z :=
  let sum := series (rounded digits scale) 99 in
  let drop := Z.log2 sum - 63 in
  (digits * (sum / 2 ^ drop) / 2 ^ 53, Z.max (scale + 11 - drop) 0).

(** "verify: accepts only 1 <= t and k t < 2^64, unchanged", and
    "verify: of these it accepts if and only if (2^64 - k t)/t is at most the bound" *)
Definition verify (k t digits scale : Z) : bool :=
  let '(mantissa, shift) := growth digits scale in
  (1 <=? t) && (k * t <? words) && ((words - k * t) * 2 ^ shift <=? t * mantissa).

Definition epsilon (digits scale : Z) : R := (IZR digits / IZR (2 ^ scale))%R.

(** ** Real numbers *)

Lemma power_positive n : 0 <= n -> (0 < IZR (2 ^ n))%R.
Proof. intros. apply IZR_lt, Z.pow_pos_nonneg; lia. Qed.

(** What is rounded down is at most what it stands for. *)
Lemma quotient_le a b : 0 < b -> (IZR (a / b) <= IZR a / IZR b)%R.
Proof.
  intros Hb. assert (0 < IZR b)%R by (apply IZR_lt; assumption).
  apply Rmult_le_reg_r with (IZR b); [assumption|]. unfold Rdiv.
  rewrite Rmult_assoc, Rinv_l, Rmult_1_r, <- mult_IZR by lra.
  apply IZR_le. rewrite Z.mul_comm. apply Z.mul_div_le, Hb.
Qed.

(** The terms of the series of e^x. *)
Definition term (x : R) (n : nat) : R := (/ INR (fact n) * x ^ n)%R.

Lemma term_nonnegative x n : (0 <= x -> 0 <= term x n)%R.
Proof.
  intros. apply Rmult_le_pos; [|apply pow_le; assumption].
  left. apply Rinv_0_lt_compat, INR_fact_lt_0.
Qed.

Lemma term_next x n : term x (S n) = (term x n * (x / INR (S n)))%R.
Proof.
  unfold term. rewrite fact_simpl, mult_INR. simpl pow.
  pose proof (INR_fact_neq_0 n). assert (INR (S n) <> 0)%R by (apply not_0_INR; lia). field. auto.
Qed.

(** A part of the series is at most e^x. *)
Lemma sum_le_exp x n : (0 <= x)%R -> (sum_f_R0 (term x) n <= exp x)%R.
Proof.
  intros Hx. apply sum_incr; [|intros; apply term_nonnegative, Hx].
  unfold exp. destruct (exist_exp x) as [l Hl]. exact Hl.
Qed.

(** ** The series, rounded down *)

Lemma step_le e s n x :
  0 <= e -> 0 <= s -> 0 < n -> (IZR e / IZR (2 ^ 58) <= x)%R ->
  (IZR (step e s n) <= IZR (2 ^ 64) + x / IZR n * IZR s)%R.
Proof.
  intros He Hs Hn Hx. unfold step. rewrite plus_IZR. apply Rplus_le_compat_l.
  assert (0 < IZR n)%R by (apply IZR_lt; assumption). pose proof (power_positive 58 ltac:(lia)).
  assert (divisor : 0 < 2 ^ 58 * n) by lia.
  apply Rle_trans with (1 := quotient_le _ _ divisor). rewrite !mult_IZR.
  assert (IZR (s mod 2 ^ 122) <= IZR s)%R by (apply IZR_le, Z.mod_le; lia).
  replace (IZR e * IZR (s mod 2 ^ 122) / (IZR (2 ^ 58) * IZR n))%R
    with (IZR e / IZR (2 ^ 58) / IZR n * IZR (s mod 2 ^ 122))%R by (field; lra).
  assert (0 <= IZR e / IZR (2 ^ 58))%R.
  { apply Rmult_le_pos; [apply IZR_le, He|left; apply Rinv_0_lt_compat; lra]. }
  apply Rmult_le_compat; [| |apply Rmult_le_compat_r|]; trivial.
  - apply Rmult_le_pos; [assumption|]. left. apply Rinv_0_lt_compat. lra.
  - apply IZR_le, Z.mod_pos_bound. lia.
  - left. apply Rinv_0_lt_compat. lra.
Qed.

Lemma step_positive e s n : 0 <= e -> 0 < n -> 2 ^ 64 <= step e s n.
Proof.
  intros. unfold step. assert (0 <= s mod 2 ^ 122) by (apply Z.mod_pos_bound; lia).
  assert (0 <= e * (s mod 2 ^ 122) / (2 ^ 58 * n)) by (apply Z.div_pos; nia). lia.
Qed.

Lemma series_positive e steps : 0 <= e -> (steps <= 100)%nat -> 2 ^ 64 <= series e steps.
Proof. intros. destruct steps; [simpl; lia|]. apply step_positive; lia. Qed.

(** With the sum after some steps for all terms that it stands for, the series is at most e^x. *)
Lemma series_le e x steps :
  0 <= e -> (IZR e / IZR (2 ^ 58) <= x)%R -> (0 <= x)%R -> (steps <= 99)%nat ->
  (sum_f_R0 (term x) (99 - steps) + term x (100 - steps) * (IZR (series e steps) / IZR (2 ^ 64)) <= exp x)%R.
Proof.
  intros He Hx positive. pose proof (power_positive 64 ltac:(lia)) as one.
  induction steps as [|k IH]; intros Hk.
  - simpl series. unfold Rdiv. rewrite Rinv_r, Rmult_1_r by lra. exact (sum_le_exp x 100 positive).
  - specialize (IH ltac:(lia)). apply Rle_trans with (2 := IH).
    replace (99 - k)%nat with (S (99 - S k)) by lia. replace (100 - S k)%nat with (S (99 - S k)) by lia.
    replace (100 - k)%nat with (S (S (99 - S k))) by lia.
    assert (Hj : 100 - Z.of_nat k = Z.of_nat (S (S (99 - S k)))) by lia. generalize dependent (99 - S k)%nat.
    intros j Hj. cbn [sum_f_R0 series]. rewrite (term_next x (S j)), Rplus_assoc.
    apply Rplus_le_compat_l.
    set (a := term x (S j)). assert (0 <= a)%R by (apply term_nonnegative; assumption).
    rewrite INR_IZR_INZ, <- Hj.
    pose proof (step_le e (series e k) (100 - Z.of_nat k) x He) as below.
    assert (0 <= series e k) by (pose proof (series_positive e k He); lia).
    specialize (below ltac:(assumption) ltac:(lia) Hx).
    replace (a + a * (x / IZR (100 - Z.of_nat k)) * (IZR (series e k) / IZR (2 ^ 64)))%R
      with (a * ((IZR (2 ^ 64) + x / IZR (100 - Z.of_nat k) * IZR (series e k)) / IZR (2 ^ 64)))%R
      by (assert (IZR (100 - Z.of_nat k) <> 0)%R by (apply not_0_IZR; lia); field; lra).
    apply Rmult_le_compat_l; [assumption|]. apply Rmult_le_compat_r; [|assumption].
    left. apply Rinv_0_lt_compat. assumption.
Qed.

(** The bound of a device is at most e^ε - 1. *)
Theorem growth_is_below digits scale :
  0 <= digits -> 0 <= scale ->
  let '(mantissa, shift) := growth digits scale in
  (IZR mantissa / IZR (2 ^ shift) <= exp (epsilon digits scale) - 1)%R.
Proof.
  intros Hd Hs. unfold growth. set (e := rounded digits scale). set (x := epsilon digits scale).
  pose proof (power_positive scale Hs) as Hscale.
  assert (He : 0 <= e) by (apply Z.div_pos; [|apply Z.pow_pos_nonneg]; nia).
  assert (Hx : (IZR e / IZR (2 ^ 58) <= x)%R).
  { pose proof (quotient_le (digits * 2 ^ 58) (2 ^ scale) ltac:(apply Z.pow_pos_nonneg; lia)) as down.
    pose proof (power_positive 58 ltac:(lia)). rewrite mult_IZR in down.
    apply Rmult_le_reg_r with (IZR (2 ^ 58)); [assumption|]. unfold x, epsilon.
    replace (IZR e / IZR (2 ^ 58) * IZR (2 ^ 58))%R with (IZR e) by (field; lra).
    apply Rle_trans with (1 := down). right. field. lra. }
  assert (positive : (0 <= x)%R).
  { apply Rmult_le_pos; [apply IZR_le, Hd|left; apply Rinv_0_lt_compat, Hscale]. }
  pose proof (series_le e x 99 He Hx positive ltac:(lia)) as below.
  pose proof (series_positive e 99 He ltac:(lia)) as large.
  generalize dependent (series e 99). intros sum below large.
  change (99 - 99)%nat with 0%nat in below. change (100 - 99)%nat with 1%nat in below.
  cbn [sum_f_R0] in below. unfold term in below.
  simpl (fact _) in below. simpl (INR _) in below. simpl pow in below.
  rewrite Rinv_1, !Rmult_1_l, Rmult_1_r in below.
  assert (Hdrop : 1 <= Z.log2 sum - 63).
  { assert (Z.log2 (2 ^ 64) <= Z.log2 sum) by (apply Z.log2_le_mono, large).
    rewrite Z.log2_pow2 in *; lia. }
  set (drop := Z.log2 sum - 63) in *. clearbody drop.
  pose proof (power_positive drop ltac:(lia)) as Pdrop. pose proof (power_positive 53 ltac:(lia)) as P53.
  pose proof (power_positive 64 ltac:(lia)) as P64. pose proof (power_positive 11 ltac:(lia)) as P11.
  pose proof (quotient_le sum (2 ^ drop) ltac:(apply Z.pow_pos_nonneg; lia)) as kept.
  pose proof (quotient_le (digits * (sum / 2 ^ drop)) (2 ^ 53) ltac:(lia)) as mantissa.
  set (shift := Z.max (scale + 11 - drop) 0). pose proof (power_positive shift ltac:(lia)) as Pshift.
  assert (places : (IZR (2 ^ scale) * IZR (2 ^ 11) <= IZR (2 ^ drop) * IZR (2 ^ shift))%R).
  { rewrite <- !mult_IZR, <- !Z.pow_add_r by lia. apply IZR_le, Z.pow_le_mono_r; lia. }
  apply IZR_le in Hd. rewrite mult_IZR in mantissa.
  (* mantissa 2^-shift <= digits kept 2^-53 2^-shift <= digits sum 2^(-drop - 53 - shift) <= ε sum 2^-64. *)
  assert (bound : (IZR (digits * (sum / 2 ^ drop) / 2 ^ 53) / IZR (2 ^ shift) <=
    x * (IZR sum / IZR (2 ^ 64)))%R); [|lra].
  apply Rmult_le_reg_r with (IZR (2 ^ shift)); [assumption|].
  replace (IZR (digits * (sum / 2 ^ drop) / 2 ^ 53) / IZR (2 ^ shift) * IZR (2 ^ shift))%R
    with (IZR (digits * (sum / 2 ^ drop) / 2 ^ 53)) by (field; lra).
  apply Rle_trans with (1 := mantissa).
  apply Rle_trans with (IZR digits * (IZR sum / IZR (2 ^ drop)) / IZR (2 ^ 53))%R.
  { apply Rmult_le_compat_r; [left; apply Rinv_0_lt_compat, P53|]. apply Rmult_le_compat_l; assumption. }
  unfold x, epsilon.
  replace (IZR (2 ^ 64)) with (IZR (2 ^ 53) * IZR (2 ^ 11))%R by (rewrite <- mult_IZR; reflexivity).
  assert (0 <= IZR sum)%R by (apply IZR_le; lia).
  apply Rmult_le_reg_r with (IZR (2 ^ drop) * IZR (2 ^ scale) * IZR (2 ^ 11) * IZR (2 ^ 53))%R;
    [do 3 (apply Rmult_lt_0_compat; [|assumption]); assumption|].
  replace (IZR digits * (IZR sum / IZR (2 ^ drop)) / IZR (2 ^ 53) *
    (IZR (2 ^ drop) * IZR (2 ^ scale) * IZR (2 ^ 11) * IZR (2 ^ 53)))%R
    with (IZR digits * IZR sum * (IZR (2 ^ scale) * IZR (2 ^ 11)))%R by (field; lra).
  replace (IZR digits / IZR (2 ^ scale) * (IZR sum / (IZR (2 ^ 53) * IZR (2 ^ 11))) * IZR (2 ^ shift) *
    (IZR (2 ^ drop) * IZR (2 ^ scale) * IZR (2 ^ 11) * IZR (2 ^ 53)))%R
    with (IZR digits * IZR sum * (IZR (2 ^ drop) * IZR (2 ^ shift)))%R by (field; lra).
  apply Rmult_le_compat_l; [apply Rmult_le_pos|]; assumption.
Qed.

(** A floor that a device has verified is one whose loss is at most ε. *)
Theorem verified k t digits scale :
  0 <= digits -> 0 <= scale -> verify k t digits scale = true ->
  is_floor k t /\ is_accepted k t (epsilon digits scale).
Proof.
  intros Hd Hs. pose proof (growth_is_below digits scale Hd Hs) as below. unfold verify.
  assert (Hshift : 0 <= snd (growth digits scale)) by apply Z.le_max_r.
  destruct (growth digits scale) as [mantissa shift]. simpl in Hshift.
  rewrite !andb_true_iff, !Z.leb_le, Z.ltb_lt. intros [[Ht Hk] fits]. split; [split; assumption|].
  exists (IZR mantissa / IZR (2 ^ shift))%R. split; [|exact below].
  pose proof (power_positive shift Hshift).
  apply Rmult_le_reg_r with (IZR (2 ^ shift)); [assumption|].
  replace (IZR t * (IZR mantissa / IZR (2 ^ shift)) * IZR (2 ^ shift))%R
    with (IZR t * IZR mantissa)%R by (field; lra).
  rewrite <- !mult_IZR. apply IZR_le, fits.
Qed.
