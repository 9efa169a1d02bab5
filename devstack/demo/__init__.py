"""`make demo`: the main job on real input, ending with the proof that each record arrived."""
