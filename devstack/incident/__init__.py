"""`make incident`: what goes wrong with data, and what a person does about it, ending with the proof that each record
stands in both tables once, and changed state by key once."""
