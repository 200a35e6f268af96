"""A searchable bank of raw sentences."""
