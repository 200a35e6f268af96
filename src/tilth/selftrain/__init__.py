"""Self-training: a teacher labels retrieved sentences, the best of them train a student."""
