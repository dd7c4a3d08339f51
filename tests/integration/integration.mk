# What integration tests need beyond what they compile themselves: recordings of any size (test_html.py).

tests: $(BUILD)/bench/recording
