"""What models are asked: questions with passages, how they are arranged and put into words, and how answers are scored."""
