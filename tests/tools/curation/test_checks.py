"""Each check on rows that must go and on look-alikes that must stay."""

import pytest

from tools.curation.row import Row
from tools.curation.screen import Screen

OPTIONS = {
    "multiple_choice": "value",
    "max_solve_rate": 1.0,
    "min_solve_rate": 0.0,
    "min_grading": 4,
    "max_disagreement": 0.75,
    "min_chars": 16,
    "max_chars": 2500,
    "max_answer_chars": 120,
}
screen = Screen(**OPTIONS)


def reasons(problem: str, answer: str = "7", **fields) -> set[str]:
    """What the checks say of a row; for the verifier's own see `test_answers`."""
    row = Row(id="a", problem=problem, answers=(answer,) if answer else (), **fields)
    return set(screen(row).reasons) - {"unverifiable_answer"}


DROPPED = [
    ("symbol_answer", "Which variable does the volume of a cone depend on most?", "f"),
    ("symbol_answer", "Name the quantities that the volume of a cone needs.", "r, h"),
    ("symbol_answer", "Determine which of the players has a winning strategy.", "(B)"),
    ("symbol_answer", "Describe all functions with derivative $2x$.", "x^2+k"),
    ("symbol_answer", "If $3-m$ is the opposite of $2m+1$, then $m$ is ____.", "k < 1"),
    ("free_text_answer", "What is the relation of the points $A, B, C$?", "Collinear"),
    ("free_text_answer", "How can 7 be split?", r"\text{It is impossible}"),
    ("no_answer", "What is the sum of the digits of 2024?", ""),
    ("proof", "Let $a > 1$. Prove that $a^2 > a$ for every such number.", "a"),
    ("proof", "What is the product? Show that it is 20.", "20"),
    ("proof", "If $x > 0$, then show that there is a larger number.", "1"),
    ("proof", "Show that the area is $2\\pi$, and find out why.", r"2\pi"),
    ("proof", r"Find the mean and show that it is \(\frac{1}{2}\).", r"\dfrac{1}{2}"),
    ("open_question", "Give an example of a quadratic function with no root.", "x^2+1"),
    ("open_question", "Write down one value of $m$ that satisfies $m < 0$.", "-1"),
    ("open_question", "Estimate $N$. An estimate of $E$ will earn 20 points.", "33"),
    ("yes_no", "Is it possible to write 1986 as a sum of six odd squares?", "No"),
    ("yes_no", "Can three persons overcome 70 km?", r"\text{Yes}"),
    ("multi_part", "(1) Find $a$ if $a+1=2$.\n(2) Find $b$ if $b+1=3$.", "2"),
    ("multi_part", "Calculate:\n(1) $2+3$;\n(2) $4+5$.", "9"),
    ("multi_part", "Given $f(x)=x^2$.\n(I) Solve $f(x)=1$;\n(II) Find $f(3)$.", "9"),
    ("multi_part", "Given the ellipse $C$.\n1. Find its axis.\n2. Find its foci.", "2"),
    ("multi_part", "Let $n=2$. Then,\n(1) the smallest such number is;\n(2) the sum of"
     " all is ____.", "3"),
    ("multi_part", "Let $a=1$. ① Find $2a$. ② Find $3a$.", "3"),
    ("multi_part", "In how many ways can 7 stand in line if:\n(a) A is first;\n(b) B"
     " is last?", "720"),
    ("multi_part", "How many outcomes are there under the following conditions?\n(1)"
     " two boys are chosen;\n(2) no girl is chosen.", "4"),
    ("multi_part", "Choose a condition below, and find: (a) the angle $A$; (b) its"
     " sine.", "3"),
    ("multi_part", "What is the real part of $z$ if the point is (Ⅰ) on the axis; (Ⅱ)"
     " on the line?", "3"),
    ("multi_part", "Find $a$.\n(1) It is odd.\n(2) It is 3. What is then $2a$?", "3"),
    ("yes_no", "What does the sum of all $1/n$ do in the end?", "diverges"),
    ("yes_no", "Does the series $\\sum_{n=0}^\\infty n!$ converge?", "0.0"),
    ("yes_no", "Is this walk transient? Return 1 for yes and 0 for no.", "0"),
    ("rounded_answer", "Integrate $y$ over a half disk of diameter 1.", "0.08333"),
    ("rounded_answer", "320 meters take 6 seconds. How fast is it?", "53.33"),
    ("rounded_answer", "How high is a cone of slant 8 and radius 3?",
     "7.4162 \\text{ cm}"),
    ("multi_part", "Find the largest and smallest possible values of $|p| + |q|$.",
     "12"),
    ("rounded_answer", "How long will it take, to the nearest minute?", "60.868725889"),
    ("rounded_answer", "Give $x$ to three decimal places.", "12.34567890123456"),
    ("symbol_answer", "If $a = -b$, what is then $3a + 3b - 6$?", "x < 2"),
    ("rounded_answer", "Approximate the fifth root of 7, with $x_0 = 1.5$.",
     "x_3 = 1.475773162"),
    ("rounded_answer", "Use four steps to estimate the integral of $e^{x^2}$.",
     "1.4907"),
    ("free_text_answer", "Find all extrema of $y = x^2 - x$.", r"$\min$ at $x=1/2$"),
    ("free_text_answer", "Who has a winning strategy if Bob knows that $n > 0$?",
     "Show that Bob has a winning strategy"),
    ("free_text_answer", "Solve $g = h/i$ for $h$.", r"\mathrm{h} = \mathrm{gi}"),
    ("symbol_answer", r"Find a series for $y''+y$ if $y=\sum_{n=0}^\infty a_n x^n$.",
     "$b_0=2a_2+a_0$, $b_n=(n+2)(n+1)a_{n+2}+a_n$"),
    ("symbol_answer", "Which of $A$ and $B$ come first and last?", "(A, B)"),
    ("multiple_choice", "Which of these is prime?\n(a) 4\n(b) 5\n(c) 6", "(b)"),
    # what is labelled is asked for, not bound by the question
    ("multi_part", "Find the value of $m$ so that:\n(1) $m > 2$;\n(2) $m = 0$.", "0"),
    ("multi_part", "By that property, find the limits:\n(1) $1/n$;\n(2) $2/n$.", "0"),
    ("multi_part", "What value has $m$ so that $m+i$ is\n(1) real;\n(2) $1$.", "1"),
    ("multi_part", "Look: ① $1=1$; ② $1+3=4$.\nThen (1) write the next; (2) simplify"
     " $1+3+5$.", "9"),
    ("multi_part", "Find $a$ and the number of all $b$.", "3"),
    ("multi_part", "Find the value of $a$ and the area of the triangle.", "3"),
    ("no_question", "One piece has length $a$. The original answer is in the form"
     " $\\frac{k}{m}$. Please find $k + m$.", "3"),
    # more amounts than the gold has
    ("multi_part", "Each pays 60. What are the respective numbers of people?", "250"),
    ("multi_part", "Find the values of $\\sin a$, $\\cos b$ and $\\tan c$.", "3/5"),
    ("multi_part", "Find the integers $m$ and $n$ such that $m+n$ is least.", "106"),
    ("multi_part", "At most $\\qquad$ fit a row.\nAt most $\\qquad$ fit here.", "29"),
    ("multi_part", "The mean is [ANS] and the range is [ANS].", "29"),
    ("not_text", r"Find the area. \includegraphics[width=3cm]{a}", "3"),
    ("not_text", r"Find it. \begin{tikzpicture}\draw (0,0);\end{tikzpicture}", "3"),
    ("not_text", "Find the sum of the digits, as in www.example.org.", "3"),
    ("open_question", "Find a fundamental set of solutions: $y'' = y$.", "e^x, e^{-x}"),
    ("open_question", "Write down an irrational number between 3 and 4.", r"\pi"),
    ("open_question", "Write a function $f$ with $f(xy) = f(x) + f(y)$.", r"\ln x"),
    ("multi_part", "Find the length, the width and the area of this field.", "6"),
    ("multi_part", r"The mode is ______ and the median is \_\_\_\_.", "90"),
    ("multi_part", "Find the maximum and minimum values of $x^2$ on $[1, 2]$.", "4"),
    ("multi_part", "Calculate both the area and the perimeter of the rhombus.", "8"),
    ("multi_part", "Find the divisor and the remainder.", "23"),
    ("multi_part", "Estimate the average height and variance of all 300.", "42"),
    ("multi_part", "If $S_2 = 4$, find the values of $a_1$ and $S_5$.", "121"),
    ("yes_no", "Does there exist a cube of three digits that ends in 7?", "343"),
    ("yes_no", "They need 30. If they won 13, did they get there?", "8"),
    ("yes_no", "Determine whether the limit of $y\\sin(1/x)$ at the origin exists.",
     "0"),
    ("yes_no", "Given that $H$ has index 2, determine if $H$ contains $g$.", "g"),
    ("yes_no", "Determine if there is a limit of \\[f(x) = 1/x\\]", "0"),
    ("yes_no", "Let $a_n$ be summable. Does it follow that $n a_n$ vanishes? Explain"
     " why that is so.", "0"),
    ("yes_no", "Is it possible to arrange the cards so that no two meet?", "4132"),
    ("missing_figure", "The diagram indicates the path. Find its area.", "803"),
    ("open_question", "Please fill in a condition that makes $AD$ a height.", "BD=CD"),
    ("open_question", "Choose one of the following three conditions and find the side"
     " $a$.", "3"),
    ("open_question", "Let $N$ be the number of such patterns below 9999. Estimate"
     " $N$.", "1984"),
    ("multiple_choice", "Which of the following is prime?\n(A) 4\n(B) 5\n(C) 6", "5"),
    ("multiple_choice", "Let $0<a<b$. Which of the following is impossible?", "$a+c$"),
    ("multiple_choice", "Among these statements, the correct ones are ____.", "①③"),
    ("multiple_choice", "Find the curve $r = 1$. Enter the letter of the correct one.",
     r"\text{(C)}"),
    ("not_text", "See https://example.org/1 and find the sum of all digits.", "3"),
    ("not_text", "How many rods are there in this ensemble?\n<image1>", "446"),
    ("not_text", "What is $x$? ![](https://cdn.mathpix.com/a.png)", "4"),
    # a drawing may tell what the text does not: how long, where, which
    ("not_text", "Find the area. [asy] draw((0,0)--(1,1)); [/asy]", "1"),
    ("not_text", 'A square has side $x$. Find $x$. [asy] label("$7$"); [/asy]', "7"),
    ("not_text", 'With $AB = 3$, what is $BC$? [asy] label("$C$"); [/asy]', "4"),
    ("not_text", "What part of the 3 circles is shaded? [asy] fill(); [/asy]", "1"),
    ("not_text", "<table><tr><td>1</td></tr></table> What is their sum?", "1"),
    ("missing_figure", "As shown in the figure, $AB=3$ and $BC=4$. Find $AC$.", "5"),
    ("missing_figure", "In the diagram, $PQR$ is a line. What is $x$?", "70"),
    ("missing_figure", "In the figure, $PQRS$ is a square and $PT=1$. Find $TU$.", "2"),
    ("missing_figure", "The square $PQRS$ is cut as shown in the figure. Find the area"
     " of the part at $P$.", "2"),
    ("missing_figure", "Five squares are arranged as shown. What is the area?", "5"),
    ("missing_figure", "How many squares are in Figure 2 when $n$ is 5?", "25"),
    ("missing_figure", "The graph shows what five of them cost. Find the price.", "7"),
    ("missing_figure", "In the star shown, all sums are equal. Which number is $q$?",
     "27"),
    ("open_question", "Estimate the 2020th twin prime. If E > 0 is your estimate and A"
     " is the correct answer, you will receive 25 A/E points.", "183761"),
    ("other_language", "Find 数学 in the equation 数学 + 1 = 20. 求这个两位数", "19"),
    ("other_language", "求 $\\frac{\\sin 2x + \\cos 2x}{\\tan x}$ 的最大值", "2"),
    ("other_language", "In which quadrant does $(-1, 2)$ lie?", "第二象限"),
    ("multi_part", "How many 0.1s are there in 1.9? How many 0.01s are in 0.8?", "80"),
    ("multi_part", "When is the gap between the trains least? What is it then, in"
     " kilometers? By when must the first have left?", "16"),
    ("size", "Find $2+2$.", "4"),
    ("size", "Find the sum. " + "word " * 600, "4"),
    ("no_question", "The distance from the origin to the line is 13.", "13"),
    # a noun that is a verb elsewhere, and verbs that state
    ("no_question", "Given a number $n$, let $p(n)$ be its largest prime factor.", "7"),
    ("no_question", "Consider five digits.\n- The first cannot be 1.\n- No digit is"
     " repeated.", "320"),
    ("no_question", "A circle is inscribed. The circle intersects the side at $D$.",
     r"\frac{a+c-b}{2}"),
    ("no_question", "Let $g(x) = f(x) + x$. Define $h(x) = f(x) - x$.", "2"),
    ("no_question", "There is a unique $t$ for which $3t$ ends with 6.", "2"),
    ("no_question", "Income is:\n\n$$55 \\cdot 4 = 220 \\text{ rubles}$$", "220"),
    ("answer_leak", "The number of situations is $\\boxed{18}$ in all.", "18"),
    ("answer_leak", "How many of the five were knights?\n\nAnswer: 2.", "2"),
    ("multi_part", "Find the values of $a$ and $b$.", r"\frac{5}{2}"),
    ("answer_leak", "How many of the five were knights? ANSWER: 3", "3"),
    ("answer_leak", "How many of the five were knights?\nAnswer. $4$", "4"),
    ("other_language", r"设 \overrightarrow{a}\cdot\overrightarrow{b} = 1, 求 a", "2"),
    ("answer_leak", r"Find $x$ if $x > 0$ and $x^2 = 2$. (Answer: $x = \sqrt{2}$)",
     r"\sqrt{2}"),
    ("missing_figure", "Fourteen cubes are stacked as shown. Find the surface.", "33"),
    ("missing_figure", "In the diagram, $PQ = 2$ and $QR = 3$. Find $PR$.", "5"),
    ("missing_figure", "The sides of a square are shaded, as shown. Find $y$.", "5"),
    ("missing_figure", "A wall of six tiles, as shown, is wet. How long is it?", "9"),
    ("size", "Find the number of functions on a set.", "1" * 130),
    ("free_text_answer", "How must the graph be moved?", "rightwards by 2 units"),
    ("free_text_answer", "What determines a sphere?", "4 points determine a sphere"),
    ("free_text_answer", "What is then wrong?", "$f(x)$ is slowly decreasing on (0,1)"),
    ("free_text_answer", "What is the shape of the triangle?", "isosceles right"),
    ("free_text_answer", "What is the contrapositive?", r"If $a < 1$, then $b < 1$"),
    ("free_text_answer", "What is the sum of the two angles?\n(A) 4\n(B) 5\n(C) none"
     " of these", "C"),
    ("free_text_answer", "What is the conic section given by it?", "PARABOLA"),
    ("symbol_answer", "Which picture is right?\n(A) A\n(B) B\n(C) C", "C"),
    ("not_text", "What is $M$? <details><summary>Answer</summary>60</details>", "60"),
]  # fmt: skip

KEPT = [
    # a figure that words draw, and an order that asks for a value as well
    ("In the diagram, $\\triangle PQR$ has $PQ=45$ and $PR=60.$ The point $S$ lies on"
     " $QR,$ $PS$ being its height, and $P$ is its right angle. Find $QS.$", "27"),
    ("As shown in Figure 1.4.23, in the triangle $PQR$, $PQ = PR$. The point $S$ is on"
     " $QR$. What is $PS$ if $QS = 1$ and $RS = 2$?", "1"),
    ("A circle is inscribed in a triangle with sides 3, 4 and 5, as shown. What is its"
     " radius?", "1"),
    ("A triangle with angles of $15$ and $60$ degrees lies in a circle of radius $R$"
     " (Fig. 10.89). Find its area.", r"\frac{\sqrt{3}}{4}R^2"),
    ("The points $S$ and $T$ lie on the side $QR$ of the triangle $PQR$, as shown in"
     " the figure. If $QS = ST = TR = PS = PT$, what is the angle at $Q$?", "30"),
    ("Find $2+3+4$. End with a line of the form Answer: $Answer, and nothing after"
     ' "Answer:". Think first.', "9"),
    ("The diagram shows a circle with radius 24 that holds two with radius 12, which"
     " touch each other and the circle. What is the radius of one that touches all?",
     "8"),
    ("Find $E(W_6 \\mid W_4)$ for the process $W$, of which $W_4$ is known.", "W_4"),
    ("Find the values of $a$ and $b$.", r"\begin{cases}a=5/2\\b=1/2\end{cases}"),
    ("On each side of a square lies a half circle (as shown in the figure). How large"
     " is it if the sides of the square are 4?", "64"),
    ("Prove that the sequence converges and find its limit, given this rule.", "2"),
    ("Let $n > 3$. Show that $n$ is odd. What is the least such $n$?", "5"),
    ("Arrange the digits 1, 2 and 3 so that they make the largest number.", "321"),
    ("Let $a_n = 2n$. Then the value of $a_4 - a_3$ is (Answer in digits).", "2"),
    ("As shown in Figure 3, in the square $PQRS$, $T$ is the midpoint of $RS$. If"
     " $PQ = 4$, find the area of triangle $PQT$.", "8"),
    ("In the diagram, $K$ lies on the side $LM$ of the triangle $LMN$. Given that $LK ="
     " KN$ and $MK = 2$, what is $LM$?", "5"),
    ("We test divisors to determine whether 2003 is prime. How many do we test?", "14"),
    ("Determine whether the sum of all $3^{-n}$ is finite. If so, find it.", "0.5"),
    # numbers that tell things apart, and mixed ones
    ("Of the lines L1, L2, L3 two are parallel. In how many points do they meet?", "2"),
    ("Let x1 and x2 be the roots of $x^2 = 3x - 1$, x real. Find x1 + x2.", "3"),
    ("Let the angles add up to 6x + 6y = 540. Find y in terms of x", "y = 90 - x"),
    ("He got 90, which is not what it should be. What is the correct answer?", "80"),
    ("How many cups are 2 1/2 + 1 3/4, if (1) means one cup?", "17/4"),
    ("Find the least $n$ such that (i) $n$ is odd; (ii) $n > 5$.", "7"),
    ("Consider the statements:\n(1) p is true\n(2) q is true\nHow many imply r?", "2"),
    ("How many sets have both properties?\n1. All is odd.\n2. It is small.", "7"),
    ("Use 1 and 2 to write a two-digit number. Find its largest value.", "21"),
    ("Find $34^{-1} \\pmod{47}$. (Give a number between 0 and 46, inclusive.)", "18"),
    ("They write a number on each card. How many cards have a 7?", "3"),
    ("How many of these are true?\n(i) $1=1$\n(ii) $1=2$", "1"),
    ("Let $f$ satisfy:\n(i) $f(1) = 1,$\n(ii) $f(2) = f(1)$ for $x \\in S.$\n\nFind"
     " $f(3).$\n\n*A. Name*", "1"),
    ("What is one and two?\n(a) 3\n(b) 4\n(c) 6\n(d) 7", "(a)"),
    ("Find the ratio of $AB$ and the length of $CD$.", "2"),
    ("Find $m$. The original answer is in the form $\\frac{k}{m}$. Give $k + m$.", "3"),
    (r"\[x^2 - 4x = 0, \quad x > 1\]", "4"),
    ("How large is the angle?", "45^"),
    (r"\[ 1.047. \left(2 + 3\right) : \frac{1}{5} \]", "25"),
    ("How many degrees are in this angle?", r"90\u00B0"),
    ("Calculate the probability that A and B are adjacent.", "1/3"),
    ("Find the line through P and Q.", "y = x"),
    ("Find the distance A and B walk.", "3"),
    ("Find the number red and blue balls make.", "3"),
    ("How far does it fall in the time $t$?", "12 m"),
    ("What is the force on a body of mass 2?", "12 N"),
    ("How long does the tour take?", "3 h"),
    ("Find the vertex of $y = a(x-h)^2 + k$.", "(h, k)"),
    ("Where is $(x-a)(x-b)$ negative, if $a < b$?", "(a,b)"),
    ("Find the general solution of $y'' = 0$.", "C_1 x + C_2"),
    ("The library lets students return 2 books for every 3 they take. How many are"
     " left of 9?", "3"),
    ("If you return 1 bottle for 3 cents, how much do 4 bring?", "12"),
    ("Determine whether the series converges, and if so give its sum.", "2"),
    ("Determine whether the series converges and give its sum.", "2"),
    ("Can you simplify $2 + 5$ to one number?", "7"),
    ("What is the third power of two fifths?", "0.064"),
    ("Colour | Cars\nwhite | 13\nblack | 14\nThe chart shows cars. How many?", "27"),
    ("Use differentials to estimate the error in the area.", "5.4"),
    ("Solve $40 x = 24^4 - 24$.", "8293.8"),
    ("Divide 3486 by 189.", "18.444444444444443"),
    ("Find the radius and the interval of convergence.", "R=1, I=(-1, 1)"),
    ("Approximate it, to four places.", "0.1234"),
    ("The circle has about 3.14 diameters. How long is one of 2?", "6.28"),
    ("What is three tenths plus four thousandths?", "0.304"),
    ("How many L are 345 mL?", "0.345"),
    ("How many km are 12 mm?", "0.000012"),
    ("What is the seventh power of one fifth?", "0.0000128"),
    ("How many odd numbers and how many even ones are there?", "2 odd numbers"),
    ("Find the volume of half a cube with edges of length $3/4$.", "0.2109375"),
    ("Find the sum of $3/10$, $2/100$ and $7/1000$.", "0.327"),
    ("If $z$ satisfies $1+z=i$, then $|z|=$ ($$)", "1"),
    ("How many of the first 1000 numbers are even? [asy] [/asy]", "500"),
    ("Find $\\sin 50^\\circ$ to the nearest thousandth.", "0.766"),
    ("In which year did he return? 2 of them came back.", "1998"),
    ("A number has two properties:\n(a) It is a palindrome\n(b) It is even.\nHow many"
     " such numbers are there below 1000?", "48"),
    ("Determine whether it converges. If so, what is the sum of all $1/2^n$?", "2"),
    ("In the equation 数学 + 1 = 20, what is the number?", "19"),
    ("How many different words can be made from the letters of the word КАША?", "12"),
    ("The numbers are 2 and 3. Is their sum odd? What is their product?", "6"),
    ("What is the sum of all such numbers? And what is their product?", "7, 12"),
    ("Find the sum over all subsets of $n$ numbers.", "n(3n+1)2^{n-3}"),
    ("How many sons had she? I tell what I know. How many sons had she?", "7"),
    ("Find the difference between the largest and the smallest of them.", "7"),
    ("The terms are 1, 3, 5, 7, ... What is the general term?", "a_n = 2n - 1"),
    ("Find a series for $\\frac{1}{1-x}$.", r"\sum_{n=0}^{\infty} x^n"),
    ("Let $S$ be the sum over all subsets of $n$ points. Find its largest value.", "n"),
    ("Find the limit of $(1+1/n)^n$ as $n$ grows.", "e"),
    ("Is $f(x) = x^2$ even, odd, or neither? Write even, odd or neither.", "even"),
    ("What is the largest angle if the smallest of the three is $60$?", "60"),
    ("Compute the product of all numbers up to $n$.", "n!"),
    (r"Let $a\_1 = 2$ and $a\_2 = 3$; then $a\_1 + a\_2 =$ ______.", "5"),
    ("The roots of $x^2 = 4$ are ______ and ______.", "-2, 2"),
    ("Find the maximum and minimum values of $x$, and then their sum.", "5"),
    ("Two circles touch the circles below them. What is their radius?", "2"),
    ("Find the sum of the length and width of this field, if both are 3.", "6"),
    ("Find its period and justify your answer, if the fraction is 1/7.", "6"),
    ("They plant equal numbers of plum and pear. How many of each kind?", "3"),
    ("Find the largest and smallest values of $x$ with $x^2 < 5$.", "-2, 2"),
    ("If she pays $50 for two, how much, in dollars, does she pay for one?", "25"),
    ("Can it be done? What is the least number of steps?", "4"),
    ("What is the largest: which of the following numbers is it: 3, 5, 7?", "7"),
    ("How much does she pay for a certain mass of fruit, if 2 kg of it cost $4 and the"
     " mass is 5 kg. Find the price.", "10"),
    ("It turns some expressions into squares. How many of them are there?", "3"),
    ("There are 6 students; in total they shake hands $\\qquad$ times.", "15"),
    ("$390\\%$ of [ANS] is $3003$.", "770"),
    ("Give the probability to 8 decimal places.", "0.33333333"),
    ("Solve the problem to a maximum of 12 significant digits: $1.4 / 3$.",
     "0.466666666667"),
    ("A club sent 90 cards. The number of its members is ______.", "10 members"),
    (r"The total of all the even digits is \uline{~~~~}", "20"),
    ("The greatest number of points that two circles share", "2"),
    ("$|\\sqrt{2}-\\sqrt{3}| - \\tan 60^{\\circ}$.", r"-\sqrt{2}"),
    ("When the root of $x$ is cubed, the answer is 64. What is $x$?", "16"),
    ("How long did the whole trip take?", r"3 \text{ hours and 20 minutes}"),
    ("Numbers are deleted until only one number is left. What is it?", "5"),
    ("Find the area between $y = x$ and $y = x^2$.", "1/6"),
    ("Find $a$ and $b$ with $a + b = 3$ and $a - b = 1$.", "2, 1"),
    ("How long do they take together if each of them takes 6 h alone?", "3"),
    ("What is her mean speed if she walks a certain distance at 3 mph?", "3"),
    (r"Find \(x + y\) given \(x = 1\) and \(y = 2\).", "3"),
    ("How long will it take each of them to walk 6 km at 3 km an hour?", "2"),
    ("Use $1/7 = 0.142857142857142857...$ to find the third digit of $3/7$.", "8"),
    ("Let $f(x) = x$. Find $f(1) + f(2) + \\cdots + f(2021)$.", "2043231"),
    ("Determine, with proof, the smallest positive integer with this property.", "9"),
    ("A professor asks a student to prove an implication. How many are there?", "6"),
    ("It can be shown that $x$ is unique. Compute $x$ if $2x = 6$.", "3"),
    ("A program outputs TRUE or FALSE. How many programs are there? There are true or"
     " false questions.", "65536"),
    ("Explain your reasoning: what is the value of $2^5$?", "32"),
    ("Jimmy has 5 action figures. How many figures does he have left?", "5"),
    ("The second line, passing through $B$, is drawn. What is its slope?", "2"),
    ("An integer is drawn at random. The ratio is given by $m/n$. Find $m+n$.", "5"),
    ("The matrix $\\begin{array}{cc}1&2\\\\3&4\\end{array}$ is shown. Find its trace.",
     "5"),
    ("The value of $|2h-3k|$ is", "0"),
    ("Rewrite $0.75$ as a fraction.", "3/4"),
    ("Completely factor the expression $x^2 - 9$.", "(x-3)(x+3)"),
    ("The sum of the lengths of the two sides", "5"),
    ("If it covers 300 miles in 5 hours, can you figure out its speed?", "60"),
    ("Find $m$ and $n$ such that $m+n=3$ and $mn=2$, and find $m^2+n^2$.", "5"),
    ("Given: $$\\begin{array}{l} a = 2. \\text{ So } a + 1 = \\end{array}$$", "3"),
    # conditions in which a verb of asking states
    ("In a grid, place coins as follows: (1) None is empty; (2) The first has 2, each"
     " other one more. How many are there in all 3?", "9"),
    ("Six sit in a row. (a) Two of them show tickets. (b) The rest sit as they please."
     " In how many ways is that done?", "720"),
    ("The area of the triangle formed by the line $x+y=1$ and the axes", "1/2"),
    ("Given $y = f(x)$ is odd, then $g(-1)=$ .", "-1"),
    ("Find all values of $x$ for which $x^2 < 2020$, where $x$ is whole.", "2020"),
    ("On which day does the first of May fall?", r"\text{Wednesday}"),
    ("Compute the matrix power of the identity.",
     r"\begin{pmatrix} 1 & 0 \\ 0 & 1 \end{pmatrix}"),
    ("What is the length of the road on a map?", r"150\, \text{square centimeters}"),
    ("Let $\\alpha$, β and ∠ABC be angles with sum 3. Find β.", "1"),
    ("After 1 step, the permutation $b$ comes after $a$. Find the number.", "1007"),
]  # fmt: skip


@pytest.mark.parametrize(("reason", "problem", "answer"), DROPPED)
def test_dropped_for_the_reason_that_names_it(reason, problem, answer):
    assert reason in reasons(problem, answer)


@pytest.mark.parametrize(("problem", "answer"), KEPT)
def test_look_alikes_stay(problem, answer):
    assert reasons(problem, answer) == set()


def test_every_reason_that_applies_is_named():
    both = "Prove that $x$ exists. See <image1>."
    assert {"proof", "not_text", "no_answer"} <= reasons(both, "")


def test_a_grading_without_a_number_of_samples_says_nothing():
    assert reasons("What is $2+5$ here?", meta={"graded": {"samples": "8"}}) == set()


def test_a_question_that_models_solve_lacks_no_figure():
    asked = "In the diagram, what is the area of the shaded region?"
    assert "missing_figure" in reasons(asked)
    assert "missing_figure" in reasons(asked, solve_rate=0.4)
    assert reasons(asked, solve_rate=0.5) == set()


def test_solve_rates_are_a_filter_only_when_asked():
    graded = Screen(**OPTIONS | {"min_solve_rate": 0.01, "max_solve_rate": 0.9})
    row = {"id": "a", "problem": "What is the sum of 2 and 5?", "answers": ("7",)}

    def dropped(rate):
        return "solve_rate" in graded(Row(**row, solve_rate=rate)).reasons

    assert [dropped(rate) for rate in (None, 0.0, 0.5, 1.0)] == [
        False, True, False, True,
    ]  # fmt: skip


@pytest.mark.parametrize(
    "problem",
    [
        "Given is $2+x$.\n\nA. Find it for $x=5$.\n\nB. Find $x$ if it is 4.",
        "**a)** Solve $x=1$. **b)** What is then $f(0)$?",
    ],
)
def test_labels_cost_a_row_but_where_they_are_conditions(problem):
    assert reasons(problem) == {"multi_part"}
